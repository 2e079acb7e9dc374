package microelf

const machine = 62 // EM_X86_64
