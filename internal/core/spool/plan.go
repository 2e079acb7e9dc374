package spool

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/tend-run/tend/process"
)

// Usage is what one process holds in the spool.
type Usage struct {
	ID         process.ID
	Owner      string // who shares the budget with others: a sandbox; "" is the machine
	Live       bool   // nothing but heads of its streams is to be freed
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
// facts exceed the bounds for facts; then, while all spools together are over the budget,
// output. Each time that owner gives something who has the most: so nobody who has less
// than an equal share loses anything by what others write. Of one owner the oldest facts go
// first, and the output of finished processes, oldest first, and last the heads of live
// streams with policy drop-oldest, the largest stream first, down to half of each. Streams
// with policy block are left, and so are finished processes that are pinned.
func Plan(now time.Time, b Bounds, usage []Usage) []Action {
	var actions []Action
	var total, facts int64
	var processes int
	owners := map[string]*owner{}
	for _, u := range usage {
		o := owners[u.Owner]
		if o == nil {
			o = &owner{name: u.Owner}
			owners[u.Owner] = o
		}
		keep := u.TTL
		if keep == 0 {
			keep = b.TTL
		}
		switch {
		case u.Live && u.Policy == process.DropOldest:
			for _, s := range u.Streams {
				o.trims = append(o.trims, trim{u.ID, s})
			}
		case u.Live, u.Pinned:
		case keep > 0 && now.Sub(u.FinishedAt) >= keep:
			actions = append(actions, Action{ID: u.ID, Remove: true})
			continue
		default:
			o.finished = append(o.finished, u)
			o.facts += u.facts()
			facts += u.facts()
			processes++
		}
		o.total += u.Bytes()
		total += u.Bytes()
	}
	for _, o := range owners {
		slices.SortStableFunc(o.finished, func(a, b Usage) int { return a.FinishedAt.Compare(b.FinishedAt) })
		slices.SortStableFunc(o.trims, func(a, b trim) int { return cmp.Compare(b.End-b.Base, a.End-a.Base) })
	}
	forget := func(o *owner) bool {
		if len(o.finished) == 0 {
			return false
		}
		u := o.finished[0]
		actions = append(actions, Action{ID: u.ID, Remove: true})
		o.finished, o.facts, o.total = o.finished[1:], o.facts-u.facts(), o.total-u.Bytes()
		facts, processes, total = facts-u.facts(), processes-1, total-u.Bytes()
		return true
	}
	giveUntil(func() bool { return b.Facts <= 0 || facts <= b.Facts }, owners, func(o *owner) int64 { return o.facts }, forget)
	giveUntil(func() bool { return b.Processes <= 0 || processes <= b.Processes }, owners,
		func(o *owner) int64 { return int64(len(o.finished)) }, forget)
	giveUntil(func() bool { return total <= b.Budget }, owners, func(o *owner) int64 { return o.total }, func(o *owner) bool {
		a, gain, ok := o.free()
		if ok {
			actions = append(actions, a)
			o.total -= gain
			total -= gain
		}
		return ok
	})
	return actions
}

// giveUntil has the owner with the most give, over and over, until it is enough or nobody has
// more to give.
func giveUntil(enough func() bool, owners map[string]*owner, has func(*owner) int64, give func(*owner) bool) {
	if enough() {
		return
	}
	h := &byMost{has: has}
	for _, o := range owners {
		h.all = append(h.all, o)
	}
	heap.Init(h)
	for h.Len() > 0 && !enough() {
		if give(h.all[0]) {
			heap.Fix(h, 0)
		} else {
			heap.Pop(h)
		}
	}
}

// owner is what one owner has, and can give.
type owner struct {
	name         string
	total, facts int64
	finished     []Usage // oldest first
	trims        []trim  // largest first
}

// free takes what the owner gives next of its output.
func (o *owner) free() (a Action, gain int64, ok bool) {
	for len(o.finished) > 0 {
		u := o.finished[0]
		o.finished = o.finished[1:]
		if gain := u.Bytes() - u.facts(); !u.Freed && gain > 0 {
			return Action{ID: u.ID, Free: true}, gain, true
		}
	}
	for len(o.trims) > 0 {
		t := o.trims[0]
		o.trims = o.trims[1:]
		if before := (t.Base + (t.End-t.Base)/2) &^ (BlockSize - 1); before > t.Base {
			return Action{ID: t.id, Stream: t.Stream, Before: before}, before - t.Base, true
		}
	}
	return Action{}, 0, false
}

// byMost is a heap of owners, the one with the most first.
type byMost struct {
	all []*owner
	has func(*owner) int64
}

func (h *byMost) Len() int { return len(h.all) }
func (h *byMost) Less(i, j int) bool {
	a, b := h.all[i], h.all[j]
	return cmp.Or(cmp.Compare(h.has(b), h.has(a)), cmp.Compare(a.name, b.name)) < 0
}
func (h *byMost) Swap(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *byMost) Push(any)      { panic("no owner is added") }
func (h *byMost) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return last
}

// trim is a stream whose head may be freed.
type trim struct {
	id process.ID
	StreamUsage
}
