// Package eintr repeats system calls that a signal has interrupted.
//
// Go's runtime sends signals to its own threads at any time (SIGURG, so that goroutines
// take turns). The kernel begins most calls again after one, as the runtime asks it to, but
// not all: a connect, send or receive on a socket with a time limit, poll and epoll_wait,
// a limit of memory that is written to a cgroup, fallocate on tmpfs, and what a filesystem
// in user space (FUSE) answers. They fail with EINTR. Package os repeats what it calls;
// calls of x/sys are repeated with this package.
//
// Not for close: a descriptor is closed even so, and its number may be another file's by
// the second call. Not for a wait that may end early: each repetition waits for its whole
// time again.
package eintr

import "syscall"

// Do calls until a call is not interrupted, and returns its error.
func Do(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// Get calls until a call is not interrupted, and returns what it has returned.
func Get[T any](call func() (T, error)) (T, error) {
	for {
		if v, err := call(); err != syscall.EINTR {
			return v, err
		}
	}
}
