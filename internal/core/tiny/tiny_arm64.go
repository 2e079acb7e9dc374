package tiny

const machine = 183 // EM_AARCH64
