package local

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// spares holds those in the shapes that were asked for last.
type spares struct {
	changed chan struct{}
	patience
	started atomic.Int64  // when something was started inside a sandbox last: Unix time, ns
	stays   time.Duration // spareStays
	shapes  int           // so many have spares at most
	most    int           // so many are kept at most

	ending sync.Mutex // held while those that are unfit are ended

	mu     sync.Mutex
	making map[shape]int // creations that are not over; guarded by mu
	pools  []*pool       // that asked for last at the end; guarded by mu
	unfit  []*spare      // to be ended; guarded by mu
}

// pool has the spares of one shape: as many as were asked for at once, in the last minute or before. What guards
// the pools guards all in it.
type pool struct {
	shape   shape
	created time.Time // when one was created last
	user    string    // of that one
	wanted  int       // how many are kept
	peak    time.Time // when as many were asked for
	ready   []*spare  // the newest last
	coming  *coming   // nil: none is being made
}

// coming is a spare that is being made.
type coming struct {
	made   chan struct{} // closed when it is, or will not be
	wanted bool          // a creation waits for it
}

// of is the pool of a shape; nil: there is none. p.mu is held.
func (p *spares) of(want shape) *pool {
	for _, q := range p.pools {
		if q.shape == want {
			return q
		}
	}
	return nil
}

// drop ends a pool. p.mu is held.
func (p *spares) drop(q *pool) {
	p.unfit, q.ready = append(p.unfit, q.ready...), nil
	p.pools = slices.DeleteFunc(p.pools, func(other *pool) bool { return other == q })
}

// patience is how long nothing must have been created or started before a spare is made, which would be in its way, and how
// long that may take. For the first it is another time, if no creation goes on.
type patience struct{ first, after, latest time.Duration }

var (
	// With a processor to spare it is made as soon as the first program of the sandbox that was just created runs: who creates
	// one after the other finds one ready, or nearly so.
	sparePatience = func() patience {
		p := patience{20 * time.Millisecond, 20 * time.Millisecond, time.Second}
		if runtime.NumCPU() > 1 {
			p.first = 5 * time.Millisecond
		}
		return p
	}()
	// What starts in a warm one takes a second of work, which the sandbox that was just created does, too.
	warmPatience = patience{2 * time.Second, 2 * time.Second, 20 * time.Second}
)

func newSpares(p patience, shapes, most int) spares {
	return spares{changed: make(chan struct{}, 1), stays: spareStays, patience: p, shapes: min(shapes, most), most: most,
		making: map[shape]int{}}
}

// mostSpares are 128, and fewer on a machine with less than 8 GiB: each takes less than 1 MiB, which is a 64th of its part.
func mostSpares() int { return max(1, min(128, int(memoryOfMachine()>>26))) }

const (
	// spareFor is how long a spare waits for a creation.
	spareFor = 10 * time.Minute
	// warmTime bounds how long it takes to warm one up: its files may come from a cold disk.
	warmTime = 2 * time.Minute
	// spareEases is how long as many are kept as were asked for at once; then half of them.
	spareEases = time.Minute
	// spareShapes are the shapes of which some are kept ready.
	spareShapes = 4
	// spareStays is how long a spare is left alone by creations in other shapes.
	spareStays = 10 * time.Second
	// spareEnds bounds how long the end of a spare may take: that of the server may have to
	// wait for one.
	spareEnds = 2 * time.Second
)

// dropAll ends all pools. p.mu is held.
func (p *spares) dropAll() {
	for len(p.pools) > 0 {
		p.drop(p.pools[0])
	}
}

// await reports whether a spare is made in time.
func (p *spares) await(ctx context.Context, c *coming) bool {
	late := time.NewTimer(p.latest)
	defer late.Stop()
	select {
	case <-c.made:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// give ends the pool that was asked for least recently, for another shape, unless what is in it is new. p.mu is held.
func (p *spares) give(now time.Time) bool {
	q := p.pools[0]
	if n := len(q.ready); n > 0 && now.Sub(q.ready[n-1].since) < p.stays {
		return false
	}
	p.drop(q)
	return true
}

// wake has keepSpare look again.
func (p *spares) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// pass finds out what no spare is needed for any more, and returns of what one is to be made next, and how long to
// wait before; 0: it is time.
func (p *spares) pass(now time.Time) (next *pool, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = time.Hour
	for len(p.pools) > 0 && now.Sub(p.pools[0].created) >= spareFor {
		p.drop(p.pools[0])
	}
	if len(p.pools) == 0 {
		return nil, wait
	}
	last := p.pools[len(p.pools)-1].created
	idle := min(now.Sub(last), now.Sub(time.Unix(0, p.started.Load())))
	if len(p.making) > 0 {
		idle = 0
	}
	wait = min(wait, spareFor-now.Sub(p.pools[0].created))
	room := p.most
	for _, q := range slices.Backward(p.pools) {
		if q.wanted > 1 && now.Sub(q.peak) >= spareEases {
			q.wanted, q.peak = q.wanted/2, now
		}
		if q.wanted > 1 {
			wait = min(wait, spareEases-now.Sub(q.peak))
		}
		wanted, kept := min(q.wanted, room), len(q.ready)
		room -= wanted
		if kept >= wanted {
			p.unfit = append(p.unfit, q.ready[:kept-wanted]...)
			q.ready = slices.Clone(q.ready[kept-wanted:])
			continue
		}
		after := p.after
		if kept == 0 && len(p.making) == 0 {
			after = p.first
		}
		left := max(0, after-idle)
		if now.Sub(q.created) >= p.latest {
			left = 0
		}
		if next == nil || left < wait {
			next, wait = q, min(wait, left)
		}
	}
	return next, wait
}
