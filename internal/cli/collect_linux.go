package cli

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// collectOrphans collects what dies as a child of the first process of a container, until the
// function that it returns is called: whoever loses its parent there becomes that one's
// child. Whatever else waits for a child of this process must have done so before.
func collectOrphans() (stop func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	died, over := make(chan os.Signal, 1), make(chan struct{})
	died <- unix.SIGCHLD // some may have died before
	signal.Notify(died, unix.SIGCHLD)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-died:
			case <-over:
				return
			}
			for {
				if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.EINTR && pid <= 0 {
					break
				}
			}
		}
	})
	return func() { signal.Stop(died); close(over); wg.Wait() }
}
