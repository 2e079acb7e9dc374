//go:build linux && (386 || arm)

package files

import "golang.org/x/sys/unix"

// The calls without 32 in their names know 16 bits of an id.
const (
	sysSetresuid = unix.SYS_SETRESUID32
	sysSetresgid = unix.SYS_SETRESGID32
	sysSetgroups = unix.SYS_SETGROUPS32
)
