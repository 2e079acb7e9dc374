//go:build linux

package client

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/process"
)

// A stream that is long is freed behind its readers while the process runs: what
// all have passed, but for the last bytes, of which there is a number for each
// machine. The pages that are given back are used again for what comes next. Were
// they kept up to the limit of the keeper, there would be more of them than the
// kernel lets a disk be behind, and the process would write as fast as the disk.

const (
	// keepMost and keepLeast bound what is kept of each stream by default, in
	// bytes, and keepOfMemory what part it is of the machine's memory: the kernel
	// begins to write back when a tenth of it waits for that. While nobody reads
	// it, keepUnread is in keepMost's place: the more is kept the more pages are
	// used that were not used lately, which cost a small virtual machine several
	// times as much; of what nobody has read, they are worth it.
	keepMost     = 256 << 20
	keepUnread   = 1 << 30
	keepLeast    = 64 << 20
	keepOfMemory = 16
	keepOfBudget = 2

	// behind is kept behind each reader in bytes: what it was given may be on its
	// way, and a client that was cut continues where it was.
	behind = 64 << 20
	// freeStep is the least that is freed at a time, in bytes.
	freeStep = 32 << 20

	// A reader that left before the end has its place held for keptFor: it may be
	// back. The first reader of a process has firstWithin to come.
	keptFor     = time.Minute
	firstWithin = 10 * time.Second
	mostKept    = 64 // places, of one process

	// trailEvery bounds how often one process is looked at.
	trailEvery = 5 * time.Millisecond
)

// trail is the readers of a process, and the place of each. proc.mu guards it.
type trail struct {
	readers map[*spool.Position]bool // false: it only waits for a condition
	kept    []place
	looked  time.Time
}

// place is where a reader was that has left and may come back.
type place struct {
	at    [4]int64
	until time.Time
}

// Follow implements spool.Trail.
func (p *proc) Follow(at *spool.Position) (leave func(ended bool)) { return p.follow(at, true) }

// Follow implements spool.Trail. What an observer has passed does not count as read.
func (o observer) Follow(at *spool.Position) (leave func(ended bool)) { return o.follow(at, false) }

func (p *proc) follow(at *spool.Position, reads bool) (leave func(ended bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.live || p.final.Load() != nil {
		return func(bool) {}
	}
	if p.trail.readers == nil {
		p.trail.readers = map[*spool.Position]bool{}
	}
	p.trail.readers[at] = reads
	// Places that it holds itself now: most likely its own.
	p.trail.kept = slices.DeleteFunc(p.trail.kept, func(h place) bool { return p.holds(at, &h.at) })
	return func(ended bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.trail.readers, at)
		if ended || p.final.Load() != nil {
			return
		}
		var left [4]int64
		for s := range at {
			left[s] = at[s].Load()
		}
		p.keepPlace(left, keptFor)
	}
}

// holds reports whether a reader holds all that a place does.
func (p *proc) holds(at *spool.Position, place *[4]int64) bool {
	for _, s := range p.streams() {
		if at[s].Load() > place[s] {
			return false
		}
	}
	return true
}

// keepPlace holds a place. p.mu is held.
func (p *proc) keepPlace(at [4]int64, d time.Duration) {
	if len(p.trail.kept) == mostKept {
		p.trail.kept = slices.Delete(p.trail.kept, 0, 1)
	}
	p.trail.kept = append(p.trail.kept, place{at, time.Now().Add(d)})
}

// passed is up to where a stream is to be freed: what all readers have passed, but
// for the last bytes, of which there are more while it has no reader; 0 if nothing
// is.
func (p *proc) passed(s process.Stream) int64 {
	base, end := p.slot.Base(s), p.slot.End(s)
	if end-p.m.keep.Load()-base < freeStep {
		return 0
	}
	now, floor, read := time.Now(), end, false
	p.mu.Lock()
	for at, reads := range p.trail.readers {
		place := at[s].Load()
		floor = min(floor, place-behind)
		read = read || reads && place != math.MaxInt64
	}
	for _, h := range p.trail.kept {
		if now.Before(h.until) {
			floor = min(floor, h.at[s]-behind)
		}
	}
	p.mu.Unlock()
	keep := p.m.keepUnread.Load()
	if read {
		keep = p.m.keep.Load()
	}
	if floor = min(floor, end-keep); floor-base < freeStep {
		return 0
	}
	return floor
}

// isLong has a process looked at whose output is more than is kept by default.
// p.mu is held.
func (p *proc) isLong() {
	if r := &p.spec.Load().Retention; r.Limit != 0 || r.Policy != process.DropOldest {
		return
	}
	keep := p.m.keep.Load()
	for _, s := range p.streams() {
		if p.slot.End(s)-p.slot.Base(s) < keep+freeStep {
			continue
		}
		if now := time.Now(); now.Sub(p.trail.looked) >= trailEvery {
			select {
			case p.m.long <- p:
				p.trail.looked = now
			default:
			}
		}
		return
	}
}

// freePassed frees long streams behind their readers.
func (m *Manager) freePassed(ctx context.Context) {
	for {
		select {
		case p := <-m.long:
			for _, s := range p.streams() {
				if p.final.Load() != nil || !p.slotIsMine() {
					break
				}
				to := p.passed(s)
				if to == 0 {
					continue
				}
				if err := p.Trim(ctx, s, to); err != nil && !errors.Is(err, process.ErrExited) && ctx.Err() == nil {
					m.cfg.Log.Warn("output that was read cannot be freed", "id", p.id, "err", err)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

func (p *proc) slotIsMine() bool { return p.slot.Gen() == p.ref.Gen }

// keepOf is what is kept of each stream, at most most, when nothing was said.
func keepOf(most, budget, memory int64) int64 {
	keep := most
	if memory > 0 {
		keep = min(keep, memory/keepOfMemory)
	}
	return min(max(keep, keepLeast), max(budget/keepOfBudget, 1<<20))
}
