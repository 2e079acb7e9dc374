package project

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// keepRights gives up what set-uid programs would add. That is of a thread, and of what it
// executes: so this program is executed once more.
func keepRights(env []string) error {
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || set == 1 {
		return os.NewSyscallError("prctl", err)
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	return os.NewSyscallError("execve", unix.Exec("/proc/self/exe", os.Args, env))
}
