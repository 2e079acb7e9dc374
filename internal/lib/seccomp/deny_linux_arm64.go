package seccomp

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

var more = []uint32{unix.SYS_KEXEC_FILE_LOAD}
