//go:build linux && tend_failpoint

package failpoint

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// table is what the role looks at. A package variable, because points are all
// over the roles; it exists in test builds alone.
var table atomic.Pointer[Table]

// Open maps the points' file of a state directory, if there is one.
func Open(stateDir string) {
	if t, err := open(stateDir, 0); err == nil {
		table.Store(t)
	}
}

// Hit is one passage of a point.
func Hit(p Point) {
	t := table.Load()
	if t == nil {
		return
	}
	atomic.AddUint32(t.word(p, passed), 1)
	left := t.word(p, armed)
	for {
		n := atomic.LoadUint32(left)
		if n == 0 {
			return
		}
		if atomic.CompareAndSwapUint32(left, n, n-1) {
			if n > 1 {
				return
			}
			break
		}
	}
	stops := atomic.LoadUint32(t.word(p, hold)) == 1
	atomic.StoreUint32(t.word(p, pid), uint32(os.Getpid()))
	if !stops {
		atomic.AddUint32(t.word(p, struck), 1)
		unix.Kill(os.Getpid(), unix.SIGKILL)
		select {} // the kernel needs no more of us
	}
	atomic.AddUint32(t.word(p, struck), 1) // before all threads stand still
	// A signal for the process may be another thread's: this one would go on, say that
	// nobody stands here, and the process would stop after that, for ever.
	runtime.LockOSThread()
	unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
	runtime.UnlockOSThread()
	for atomic.LoadUint32(t.word(p, hold)) == 1 {
		time.Sleep(100 * time.Microsecond)
	}
	atomic.CompareAndSwapUint32(t.word(p, pid), uint32(os.Getpid()), 0)
}
