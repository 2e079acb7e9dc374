//go:build linux

package keeper

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/reaplog"
	"github.com/tend-run/tend/process"
)

// exitOf reads code and status out of a siginfo_t (offsets 8 and 24 on all
// 64-bit Linux).
func exitOf(info *unix.Siginfo) *process.Exit {
	raw := siginfoBytes(info)
	status := int(int32(binary.NativeEndian.Uint32(raw[24:])))
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED; CLD_KILLED is 2
	if info.Code == exited {
		return &process.Exit{Code: status}
	}
	return &process.Exit{Signal: status, CoreDumped: info.Code == dumped}
}

func siginfoBytes(info *unix.Siginfo) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(info)), unsafe.Sizeof(*info))
}

// pidfdExit asks the kernel for the exit status kept with a pidfd (Linux 6.15); nil if
// the kernel does not know it.
func pidfdExit(pidfd int) *process.Exit {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return nil
	}
	return reaplog.FromStatus(unix.WaitStatus(info.Exit_code))
}
