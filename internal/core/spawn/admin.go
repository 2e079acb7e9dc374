//go:build linux

package spawn

import (
	"golang.org/x/sys/unix"
)

// Admin reports whether this process has CAP_SYS_ADMIN of its user namespace. Without it a process enters
// the namespaces of a sandbox together with the user namespace, which is its own, or not at all.
func Admin() bool {
	header, caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	return unix.Capget(&header, &caps[0]) == nil && caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
