//go:build linux

package nap

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestASleepIsAsLongAsAsked, and no timer of Go ends it before.
func TestASleepIsAsLongAsAsked(t *testing.T) {
	for _, d := range []time.Duration{0, time.Microsecond, 300 * time.Microsecond, 2 * time.Millisecond} {
		begin := time.Now()
		For(d)
		if took := time.Since(begin); took < d {
			t.Errorf("%v took %v", d, took)
		}
	}
}

// TestASignalEndsNoSleep: the thread gets signals while it sleeps, as by Go's scheduler.
func TestASignalEndsNoSleep(t *testing.T) {
	tid := make(chan int)
	over := make(chan time.Duration)
	go func() {
		tid <- unix.Gettid()
		begin := time.Now()
		For(999 * time.Microsecond)
		over <- time.Since(begin)
	}()
	to := <-tid
	for {
		select {
		case took := <-over:
			if took < 999*time.Microsecond {
				t.Errorf("it took %v", took)
			}
			return
		default:
			_ = unix.Tgkill(unix.Getpid(), to, unix.SIGURG) // the thread may have ended
		}
	}
}
