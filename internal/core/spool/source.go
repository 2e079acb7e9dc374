package spool

import (
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/process"
)

// Progress is the progress of a process: what a reader may read, and which events it
// must deliver.
type Progress struct {
	Base, End [4]int64 // by stream
	EOF       [4]bool
	IndexEnd  int64
	Exit      *process.Exit
	TreeGone  bool
	Removed   bool
	// Held: the filesystem is full, so output is blocked, or facts are not written yet.
	// The exit is then deferred, because there is output before it.
	Held    bool
	PID     int
	Started time.Time
}

// Source reports the progress of the process to a reader. Progress must be read in this
// order: exit and flags first, then ends, then bases, then the index's end. So no value
// is ahead of those that were read after it. The index may be ahead of the ends. End
// and Base of a stream never get smaller.
type Source interface {
	Progress() Progress
	// Subscribe sends to ready, without ever blocking, after each change.
	Subscribe(ready chan<- struct{}) (cancel func())
}

// Position is the position of a reader, by stream; math.MaxInt64 for a stream that it
// does not read.
type Position [4]atomic.Int64

// Trail is a Source that frees the bytes that all its readers have passed. Follow is
// called with the position of each reader, and leave when the reader is closed; ended
// says that it had read everything.
type Trail interface {
	Follow(at *Position) (leave func(ended bool))
}

// Prompter is a Source that can call f instead of sending to ready, and sends
// only if it returns false; see process.Prompter.
type Prompter interface {
	Prompt(ready chan<- struct{}, f func() bool)
}

type finished struct{ p Progress }

func (f finished) Progress() Progress             { return f.p }
func (finished) Subscribe(chan<- struct{}) func() { return func() {} }

// Finished is the source of a process that is over, from its files alone. All
// streams are at their end: nobody writes any more.
func Finished(dir string) (Source, *Journal, error) {
	r, err := inspect(dir)
	if err != nil {
		return nil, nil, err
	}
	j := &r.Journal
	j.Damaged = r.Damaged
	p := Progress{Base: r.Base, End: r.End, EOF: [4]bool{true, true, true, true}, IndexEnd: r.IndexEnd,
		Exit: j.Exit, TreeGone: true, Started: j.StartedTime}
	if j.Started != nil {
		p.PID = j.Started.PID
	}
	return finished{p}, j, nil
}
