package seccomp

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

var more = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_USELIB}
