package spool

import (
	"cmp"
	"slices"
	"time"

	"github.com/tend-run/tend/process"
)

// Usage is what one process holds in the spool.
type Usage struct {
	ID         process.ID
	Live       bool // nothing but heads of its streams is to be freed
	FinishedAt time.Time
	TTL        time.Duration // 0: the default
	Pinned     bool          // not to be touched, though finished
	Freed      bool          // nothing but its facts is left
	Policy     process.RetentionPolicy
	Streams    []StreamUsage
	Index      int64 // bytes of the index that are not freed
	Disk       int64 // of a finished process: bytes of the disk, all in all; 0: as its streams say
	Spec       int64 // bytes of the journal
}

// StreamUsage is what one stream of it holds.
type StreamUsage struct {
	Stream    process.Stream
	Base, End int64
}

// Bytes is what the process takes of the disk.
func (u *Usage) Bytes() int64 {
	if u.Disk > 0 {
		return u.Disk
	}
	n := blocks(u.Spec) + overhead
	for _, s := range u.Streams {
		n += s.End - s.Base
	}
	return n + u.Index
}

// facts is what is left of it when its output is freed.
func (u *Usage) facts() int64 {
	if u.Freed {
		return u.Bytes()
	}
	return min(blocks(min(u.Spec, BlockSize))+BlockSize, u.Bytes())
}

func blocks(n int64) int64 { return (n + BlockSize - 1) &^ (BlockSize - 1) }

// Action frees space: one of its fields after ID says which.
type Action struct {
	ID     process.ID
	Remove bool           // the process, and all that is known of it
	Free   bool           // all output of a finished process; its facts stay
	Stream process.Stream // of a live process
	Before int64          // trim: free what lies before
}

// overhead is what a process takes beside its journal and what it wrote: the
// directory, and the last blocks of its files, which are not full.
const overhead = 3 * BlockSize

// Bounds limit the total size of the spools.
type Bounds struct {
	Budget int64 // bytes
	// Facts and Processes limit the finished processes whose output was freed: their
	// bytes, and their number. 0: no limit.
	Facts     int64
	Processes int
	// TTL is how long a finished process is kept if its spec does not say; 0 or
	// less: for ever.
	TTL time.Duration
}

// Plan returns what to free: finished processes whose TTL is over; processes whose
// facts exceed the bounds for facts, oldest first; then, while all spools together are
// over the budget, the output of finished processes, oldest first, and last the heads
// of live streams with policy drop-oldest, the largest stream first, down to half of
// each. Streams with policy block are left, and so are finished processes that are
// pinned.
func Plan(now time.Time, b Bounds, usage []Usage) []Action {
	var actions []Action
	var total, facts int64
	var finished []Usage
	var trims []trim
	for _, u := range usage {
		keep := u.TTL
		if keep == 0 {
			keep = b.TTL
		}
		switch {
		case u.Live && u.Policy == process.DropOldest:
			for _, s := range u.Streams {
				trims = append(trims, trim{u.ID, s})
			}
		case u.Live, u.Pinned:
		case keep > 0 && now.Sub(u.FinishedAt) >= keep:
			actions = append(actions, Action{ID: u.ID, Remove: true})
			continue
		default:
			finished = append(finished, u)
			facts += u.facts()
		}
		total += u.Bytes()
	}
	slices.SortStableFunc(finished, func(a, b Usage) int { return a.FinishedAt.Compare(b.FinishedAt) })
	for len(finished) > 0 && (b.Facts > 0 && facts > b.Facts || b.Processes > 0 && len(finished) > b.Processes) {
		u := finished[0]
		actions = append(actions, Action{ID: u.ID, Remove: true})
		total, facts, finished = total-u.Bytes(), facts-u.facts(), finished[1:]
	}
	for _, u := range finished {
		if total <= b.Budget {
			return actions
		}
		if gain := u.Bytes() - u.facts(); !u.Freed && gain > 0 {
			actions = append(actions, Action{ID: u.ID, Free: true})
			total -= gain
		}
	}
	slices.SortStableFunc(trims, func(a, b trim) int { return cmp.Compare(b.End-b.Base, a.End-a.Base) })
	for _, t := range trims {
		if total <= b.Budget {
			return actions
		}
		if before := (t.Base + (t.End-t.Base)/2) &^ (BlockSize - 1); before > t.Base {
			actions = append(actions, Action{ID: t.id, Stream: t.Stream, Before: before})
			total -= before - t.Base
		}
	}
	return actions
}

// trim is a stream whose head may be freed.
type trim struct {
	id process.ID
	StreamUsage
}
