//go:build linux

package keeper

import (
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/orphan"
	"github.com/tend-run/tend/process"
)

func notifyTerm() <-chan os.Signal {
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	return term
}

func siginfoBytes(info *unix.Siginfo) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(info)), unsafe.Sizeof(*info))
}

// pidfdExit asks the kernel for the exit status kept with a pidfd (Linux
// 6.15); nil where it cannot tell.
func pidfdExit(pidfd int) *process.Exit {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return nil
	}
	return orphan.FromStatus(unix.WaitStatus(info.Exit_code))
}
