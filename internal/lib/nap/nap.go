//go:build linux

// Package nap sleeps for less than a millisecond.
//
// A Go program in which nothing else runs waits for its timers in epoll_wait(2), whose unit
// is a millisecond: a [time.Sleep] of 20 µs takes 1.1 ms there. Where something is looked at
// again and again until the kernel has done it, that is most of the time that it takes.
package nap

import (
	"time"

	"golang.org/x/sys/unix"
)

// For sleeps for d, and about 50 µs longer, which is the timer slack of a thread. It holds a
// thread when d is less than a millisecond.
func For(d time.Duration) {
	if d >= time.Millisecond {
		time.Sleep(d)
		return
	}
	left := unix.NsecToTimespec(int64(d))
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}
