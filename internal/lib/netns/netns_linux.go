package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls f on a thread that is in the namespace of the file, which is /proc/PID/ns/net or
// one like it, and returns its error, or why the namespace could not be entered: it takes
// CAP_SYS_ADMIN, there and here. The thread goes back by a descriptor of the namespace that
// it was in; one that cannot go back is never used again. It is never the main thread, by
// which the process itself is known.
func Do(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- onThread(ns, f) }()
	return <-done
}

func onThread(ns *os.File, f func() error) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// Locked, it is kept from others until the work below is done elsewhere.
		err := Do(ns, f)
		runtime.UnlockOSThread()
		return err
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	} // else the goroutine ends locked, and its thread with it
	return err
}
