package cleansignals

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's sigaction and its constants on every architecture Go has for
// Linux but MIPS, whose mask is longer; a wrong size there is EINVAL, which
// reads as "nothing ignored".
const (
	lastSignal = 64
	maskSize   = lastSignal / 8
	ignore     = 1 // SIG_IGN
)

type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// Exec starts the program again, in place, with nothing ignored and nothing
// blocked, with these arguments and this environment; it returns nil at once if
// that is so already. Call it before anything else in main: descriptors without
// close-on-exec stay. An error says that the program could not be replaced; it
// continues as it was then, with the signals as they should be on this thread.
func Exec(argv, environ []string) error {
	// The mask is a thread's; exec keeps that of the thread that calls it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	changed := false
	for s := uintptr(1); s <= lastSignal; s++ {
		var now sigaction
		if !action(s, nil, &now) || now.handler != ignore {
			continue
		}
		if action(s, &sigaction{}, nil) {
			changed = true
		}
	}
	var none, was uint64
	const setMask = 2 // SIG_SETMASK
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&none)), uintptr(unsafe.Pointer(&was)),
		maskSize, 0, 0); errno == 0 && was != 0 {
		changed = true
	}
	if !changed {
		return nil
	}
	err := unix.Exec("/proc/self/exe", argv, environ)
	return fmt.Errorf("start again with clean signals: /proc/self/exe: %w", err)
}

// action is rt_sigaction(2), which the C library and Go refuse for the signals
// that they keep for themselves.
func action(s uintptr, to, from *sigaction) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), maskSize, 0, 0)
	return errno == 0
}
