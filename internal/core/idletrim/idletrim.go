// Package idletrim returns a role's memory to the kernel when the role is idle.
//
// An idle Go program does not collect garbage: it keeps the heap and the stacks of its
// busiest moment. The role notifies a [Trimmer] of each use. Some seconds after the last
// use, [Trimmer] returns the unneeded memory to the kernel, once. Then nothing runs until
// the next use, so an idle role is not woken.
package idletrim

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Quiet is how long a role was not used before it rests. It rests at the latest after
// twice that time.
const Quiet = 5 * time.Second

// Trimmer is one role's. A nil one does nothing.
type Trimmer struct {
	give func() // one at a time

	// used: since the timer was set. set: the timer is running, or what it runs is.
	used, set atomic.Bool

	mu    sync.Mutex // held while the role rests
	timer *time.Timer
	ended bool // guarded by mu
}

// New returns the Trimmer of a role, which has just been used: it starts. also is called at
// each rest, when the heap was given back.
func New(also ...func()) *Trimmer {
	return giving(func() {
		heap()
		for _, f := range also {
			f()
		}
	})
}

func giving(give func()) *Trimmer {
	r := &Trimmer{give: give}
	r.set.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(Quiet, r.sample)
	return r
}

// Used says that the role is used. It may be called at any time and by many at once, and
// costs two loads while the role is busy.
func (r *Trimmer) Used() {
	if r == nil {
		return
	}
	if !r.used.Load() {
		r.used.Store(true)
	}
	if !r.set.Load() && r.set.CompareAndSwap(false, true) {
		r.timer.Reset(Quiet)
	}
}

// sample is called when the timer has run out.
func (r *Trimmer) sample() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	if r.used.Swap(false) {
		r.timer.Reset(Quiet)
		return
	}
	r.give()
	r.set.Store(false)
	// A use during the rest has seen the timer as set.
	if r.used.Load() && r.set.CompareAndSwap(false, true) {
		r.timer.Reset(Quiet)
	}
}

// Close waits for a rest under way. None begins after it.
func (r *Trimmer) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.timer.Stop()
}

// heap gives back what the program's heap and stacks do not need now. It collects twice:
// a collection halves stacks that are mostly empty, and what was in a pool goes with the
// second one.
func heap() {
	runtime.GC()
	debug.FreeOSMemory()
}
