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
	Live       bool // not to be removed
	FinishedAt time.Time
	TTL        time.Duration // 0: the default
	Pinned     bool          // not to be removed, though finished
	Policy     process.RetentionPolicy
	Streams    []StreamUsage
	Index      int64 // bytes of the index that are not freed
}

// StreamUsage is what one stream of it holds.
type StreamUsage struct {
	Stream    process.Stream
	Base, End int64
}

func (u *Usage) bytes() (n int64) {
	for _, s := range u.Streams {
		n += s.End - s.Base
	}
	return n + u.Index
}

// Action frees space: removal of a finished process, or trimming of a live
// one's stream.
type Action struct {
	ID     process.ID
	Remove bool
	Stream process.Stream
	Before int64 // trim: free what lies before
}

// overhead is what a process costs beside its output: directory, journal and
// index take a block each.
const overhead = 3 * BlockSize

// Plan says what to free so that all spools together keep within the budget in
// bytes: finished processes whose time is up, then finished ones from the
// oldest on, then the heads of live streams with policy drop-oldest, the
// largest stream first, down to half of each. Streams with policy block are
// left, and so are finished processes that are pinned. A ttl of 0 or less, where a process has none of its own, is no limit.
func Plan(now time.Time, budget int64, ttl time.Duration, usage []Usage) []Action {
	var actions []Action
	var total int64
	var finished []Usage
	var trims []trim
	for _, u := range usage {
		keep := u.TTL
		if keep == 0 {
			keep = ttl
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
		}
		total += u.bytes() + overhead
	}
	slices.SortStableFunc(finished, func(a, b Usage) int { return a.FinishedAt.Compare(b.FinishedAt) })
	for _, u := range finished {
		if total <= budget {
			return actions
		}
		actions = append(actions, Action{ID: u.ID, Remove: true})
		total -= u.bytes() + overhead
	}
	slices.SortStableFunc(trims, func(a, b trim) int { return cmp.Compare(b.End-b.Base, a.End-a.Base) })
	for _, t := range trims {
		if total <= budget {
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
