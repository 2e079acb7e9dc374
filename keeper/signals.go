//go:build linux

package keeper

import (
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notifyTerm returns the channel on which SIGTERM arrives.
func notifyTerm() <-chan os.Signal {
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	return term
}

// unsignalled sets SIGCHLD back to its default. The pidfds tell of exits; Go's own
// handler would do nothing with the signal, but the kernel would wake a thread for
// each exit to run it. With the default the kernel does not even send it, and the
// children stay to be collected (ignoring it by name would collect them at once).
func unsignalled() {
	var byDefault struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&byDefault)), 0, unsafe.Sizeof(byDefault.mask), 0, 0)
}
