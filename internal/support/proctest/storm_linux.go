package proctest

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// InAStorm calls f on a thread that gets a signal again and again, one that Go's runtime
// sends, too: what the kernel does not begin again after a signal fails with EINTR. sent is
// how many were sent up to now.
func InAStorm(t testing.TB, f func(sent *atomic.Int64)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	var over atomic.Bool
	var sent atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !over.Load() {
			_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
			sent.Add(1)
			runtime.Gosched() // there may be one processor
		}
	}()
	defer func() { <-ended }()
	defer over.Store(true)
	f(&sent)
}
