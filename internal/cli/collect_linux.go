package cli

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// collectOrphans reaps zombies while tend is the first process of a container, until the
// function that it returns is called: a process that loses its parent there becomes tend's
// child. Other code must have waited for its children before.
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
