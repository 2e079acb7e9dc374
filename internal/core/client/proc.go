//go:build linux

package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// proc is what the server knows of one process. While it is live, its place on
// the board is the truth; then final is.
type proc struct {
	m       *Manager
	id      process.ID
	spec    atomic.Pointer[process.Spec] // replaced by a smaller one when its room is needed
	dir     string
	pid     int
	inner   int // its pid inside its container; 0: it is in none, or not known
	session int // in which it was started; 0: it is finished
	started time.Time

	live bool // was on the board when it was registered
	ref  wire.Ref
	slot board.Slot

	pinned atomic.Bool                    // as the journal has it; set by pin
	pins   sync.Mutex                     // held while a pin is written, so that both are in one order
	files  sync.Mutex                     // held while files of a finished process are changed
	disk   atomic.Int64                   // of a finished process: bytes on the disk; 0: not measured yet
	size   int64                          // of its journal, about, in bytes
	left   atomic.Pointer[spool.Journal]  // of a finished process whose output was freed
	took   atomic.Pointer[spool.Input]    // how much input was accepted; set before final
	ended  atomic.Int64                   // when it was over, CLOCK_BOOTTIME ns; set before final
	final  atomic.Pointer[spool.Progress] // set once, when nothing changes any more
	broken error                          // what is wrong with its directory; set before it is registered

	mu      sync.Mutex
	subs    map[chan<- struct{}]func() bool // and what to call first, or nil; guarded by mu
	written int64                           // bytes of output and index when it was last looked at; guarded by mu
	sent    uint32                          // board flags whose event was sent; guarded by mu
	fresh   bool                            // its start event is not sent yet; no other comes before it; guarded by mu
	readers int                             // followers of the output; guarded by mu
	idle    *time.Timer                     // Spec.KillWithoutReaders; guarded by mu
	wakeup  struct {                        // for a process with many readers; guarded by mu
		pending bool // a timer will wake them
		next    time.Time
	}
	trail trail // guarded by mu
	input input
}

var _ process.Process = (*proc)(nil)
var _ spool.Source = (*proc)(nil)
var _ spool.Prompter = (*proc)(nil)

func (p *proc) ID() process.ID { return p.id }

// board copies the live state. The caller has checked that the slot is ours.
func (p *proc) board() spool.Progress {
	pr := spool.Progress{PID: p.pid, Started: p.started}
	// Flags first: what they announce was stored before them. The ends after:
	// they only grow, and an exit seen here includes all output before it.
	f := p.slot.Flags()
	pr.Exit = p.slot.Exit()
	pr.TreeGone = f&board.FlagTreeGone != 0
	pr.Held = f&board.FlagNoSpace != 0
	for s := process.Stdout; s <= process.PTY; s++ {
		pr.EOF[s] = f&board.FlagEOF(s) != 0
		pr.End[s] = p.slot.End(s)
		pr.Base[s] = p.slot.Base(s)
	}
	pr.IndexEnd = p.slot.IndexEnd()
	return pr
}

// Progress implements spool.Source.
func (p *proc) Progress() spool.Progress {
	if f := p.final.Load(); f != nil {
		return *f
	}
	pr := p.board()
	if p.slot.Gen() != p.ref.Gen { // retired meanwhile: final is set before
		if f := p.final.Load(); f != nil {
			return *f
		}
		p.m.overwritten(p)
	}
	return pr
}

// readBoard turns new flags into events, and takes the process over from the board
// when it is over.
func (p *proc) readBoard() {
	flags := p.slot.Flags()
	if !p.slot.Owned(p.ref.Gen, p.id) {
		if p.final.Load() == nil {
			p.m.overwritten(p)
		}
		return // nothing there is about this process
	}
	p.mu.Lock()
	if p.fresh {
		p.mu.Unlock()
		return // started looks again
	}
	written := p.slot.IndexEnd()
	for s := process.Stdout; s <= process.PTY; s++ {
		written += p.slot.End(s)
	}
	p.m.grow(written - p.written)
	p.written = written
	p.isLong()
	fresh := flags &^ p.sent
	p.sent |= flags
	if flags&board.FlagExited != 0 {
		p.stopIdle()
	}
	p.mu.Unlock()
	if fresh&board.FlagExited != 0 {
		e := p.slot.Exit()
		p.m.watchers.Publish(process.Event{Kind: process.EventExited, ID: p.id, PID: p.pid, Exit: e, Time: e.Time})
	}
	if fresh&board.FlagTreeGone != 0 {
		p.m.watchers.Publish(process.Event{Kind: process.EventTreeGone, ID: p.id, PID: p.pid, Time: time.Now()})
	}
	if fresh&board.FlagNoSpace != 0 {
		p.m.noSpace()
	}
	if flags&board.FlagNoSpace == 0 {
		p.mu.Lock()
		p.sent &^= board.FlagNoSpace
		p.mu.Unlock()
	}
	if flags&board.FlagFinal != 0 {
		pr := p.board()
		p.took.CompareAndSwap(nil, p.inputTaken())
		p.ended.CompareAndSwap(0, procfs.BootTime())
		if p.final.CompareAndSwap(nil, &pr) {
			p.m.retired(p)
		}
	}
}

// Info implements process.Process.
func (p *proc) Info(ctx context.Context) (process.Info, error) {
	pr := p.Progress()
	if pr.Removed || p.over() {
		return process.Info{}, process.ErrNotFound
	}
	return p.info(ctx, pr), nil
}

func (p *proc) info(ctx context.Context, pr spool.Progress) process.Info {
	in := process.Info{ID: p.id, PID: p.pid, Session: p.session, Spec: p.spec.Load().Shown(), Started: p.started, Exit: pr.Exit,
		TreeGone: pr.TreeGone, Pinned: p.pinned.Load()}
	if j := p.left.Load(); j != nil {
		in.SpecCut = j.IsCut()
	}
	if p.broken != nil {
		in.Damaged = p.broken.Error()
	}
	for _, s := range p.streams() {
		in.Streams = append(in.Streams, process.StreamInfo{Stream: s, Base: pr.Base[s], End: pr.End[s], EOF: pr.EOF[s]})
	}
	switch {
	case pr.Exit != nil:
		in.State = process.Exited
	case !process.IsBrief(ctx) && isStopped(p.pid):
		in.State = process.Stopped
	}
	if took := p.took.Load(); took != nil {
		in.Stdin.Accepted = took.Accepted
	} else if p.live {
		in.Stdin = process.StdinInfo{
			Open:     p.slot.Flags()&board.FlagStdinOpen != 0 && p.slot.Wishes()&board.StdinEOF == 0,
			Accepted: p.slot.End(process.Stdin),
		}
	}
	return in
}

func (p *proc) streams() []process.Stream {
	if p.spec.Load().PTY != nil {
		return []process.Stream{process.PTY}
	}
	return []process.Stream{process.Stdout, process.Stderr}
}

// Read implements process.Process.
func (p *proc) Read(_ context.Context, opts process.ReadOptions) (process.Reader, error) {
	return p.read(p, opts)
}

// read is Read by the progress that a source reports.
func (p *proc) read(src spool.Source, opts process.ReadOptions) (process.Reader, error) {
	if err := p.readable(); err != nil {
		return nil, err
	}
	return spool.NewReader(p.dir, p.id, p.streams(), src, opts)
}

// readable reports why nothing can be read of it.
func (p *proc) readable() error {
	switch {
	case p.Progress().Removed || p.over():
		return process.ErrNotFound
	case p.nothingKnown():
		return p.broken
	}
	return nil
}

// nothingKnown reports whether its directory is all that is known of it.
func (p *proc) nothingKnown() bool { return p.broken != nil && p.started.IsZero() }

// over reports whether the time of a finished process is up. It is no process
// any more then, though its files may be there for a moment: the code that
// removes them is notified.
func (p *proc) over() bool {
	pr := p.final.Load()
	if pr == nil || pr.Removed || p.pinned.Load() {
		return false
	}
	keep := p.spec.Load().Retention.TTL
	if keep == 0 {
		keep = p.m.cfg.TTL
	}
	if keep <= 0 || time.Duration(procfs.BootTime()-p.ended.Load()) < keep {
		return false
	}
	p.m.tidy()
	return true
}

func isStopped(pid int) bool {
	stat, ok := procfs.ReadStat(pid)
	return ok && stat.Stopped()
}
