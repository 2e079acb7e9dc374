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

// unsignalled resets SIGCHLD to its default. The pidfds report exits; Go's own handler
// would do nothing with the signal, but the kernel would wake a thread for each exit to
// run it. With the default the kernel does not even send the signal, and the children
// still wait to be reaped (explicitly ignoring the signal would reap them at once).
func unsignalled() {
	var byDefault struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&byDefault)), 0, unsafe.Sizeof(byDefault.mask), 0, 0)
}
