package microelf

const machine = 183 // EM_AARCH64
