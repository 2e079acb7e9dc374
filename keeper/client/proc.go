//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/observe"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// proc is what the server knows of one process. While it is live, its place on
// the board is the truth; then final is.
type proc struct {
	m       *Manager
	id      process.ID
	spec    atomic.Pointer[process.Spec] // replaced by a smaller one when its room is needed
	dir     string
	pid     int
	started time.Time

	live bool // was on the board when it was registered
	ref  wire.Ref
	slot board.Slot

	pinned atomic.Bool                    // as the journal has it; set by pin
	pins   sync.Mutex                     // held while a pin is written, so that both are in one order
	files  sync.Mutex                     // held while files of a finished process are changed
	disk   atomic.Int64                   // of a finished process: bytes of the disk; 0: to be looked at
	size   int64                          // of its journal, about, in bytes
	left   atomic.Pointer[spool.Journal]  // of a finished process whose output was freed
	took   atomic.Pointer[spool.Input]    // of the input; set before final
	ended  atomic.Int64                   // when it was over, CLOCK_BOOTTIME ns; set before final
	final  atomic.Pointer[spool.Progress] // set once, when nothing changes any more
	broken error                          // what is wrong with its directory; set before it is registered

	mu      sync.Mutex
	subs    map[chan<- struct{}]func() bool // and what to call first, or nil; guarded by mu
	written int64                           // bytes of output and index when it was last looked at; guarded by mu
	told    uint32                          // board flags whose event was sent; guarded by mu
	fresh   bool                            // its start is still to be told, before all else; guarded by mu
	readers int                             // followers of the output; guarded by mu
	idle    *time.Timer                     // Spec.KillWithoutReaders; guarded by mu
	rouse   struct {                        // of a crowd; guarded by mu
		pending bool // a timer will do it
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

// Subscribe implements spool.Source. A subscriber counts as a reader.
func (p *proc) Subscribe(ready chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(ready)
	p.readers++
	p.stopIdle()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, ok := p.subs[ready]; ok {
			delete(p.subs, ready)
			if p.readers--; p.readers == 0 {
				p.startIdle()
			}
		}
	}
}

// enter makes ready one that is woken. p.mu is held.
func (p *proc) enter(ready chan<- struct{}) {
	if p.subs == nil {
		p.subs = map[chan<- struct{}]func() bool{}
	}
	p.subs[ready] = nil
}

// Prompt implements spool.Prompter.
func (p *proc) Prompt(ready chan<- struct{}, f func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.subs[ready]; ok {
		p.subs[ready] = f
	}
}

// promptMost is how many readers of one process, and of how many processes that
// have moved at one time, are called and not woken: those behind them wait.
const promptMost = 4

// prompt is changed for the dispatcher: readers that wish it are called.
func (p *proc) prompt() {
	if p.live && p.final.Load() == nil {
		p.tell()
	}
	type call struct {
		ready chan<- struct{}
		f     func() bool
	}
	var calls [promptMost]call
	n := 0
	p.mu.Lock()
	if len(p.subs) > promptMost {
		p.mu.Unlock()
		p.rouseSome()
		return
	}
	for ready, f := range p.subs {
		if f == nil {
			nudge(ready)
			continue
		}
		calls[n] = call{ready, f}
		n++
	}
	p.mu.Unlock()
	for _, c := range calls[:n] {
		if !c.f() {
			nudge(c.ready)
		}
	}
}

// changed looks at the board, tells watchers what is new, and wakes readers.
func (p *proc) changed() {
	if p.live && p.final.Load() == nil {
		p.tell()
	}
	p.rouseSome()
}

// rouseSome wakes the readers, those of a crowd not each time.
func (p *proc) rouseSome() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subs) <= crowd {
		p.rouseAll()
		return
	}
	if p.rouse.pending {
		return
	}
	if wait := time.Until(p.rouse.next); wait > 0 {
		p.rouse.pending = true
		time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.rouse.pending = false
			p.rouseAll()
		})
		return
	}
	p.rouseAll()
}

// crowd is how many readers of one process are woken at each change. More are
// woken in a tenth of the time at most, all at once: a process that writes much
// would else compete for its core with its readers' being woken, which most of
// a crowd have no use for.
const crowd = 64

// rouseAll wakes all readers. p.mu is held.
func (p *proc) rouseAll() {
	begun := time.Now()
	for ready := range p.subs {
		nudge(ready)
	}
	if len(p.subs) > crowd {
		now := time.Now()
		p.rouse.next = now.Add(9 * now.Sub(begun))
	}
}

// nudge sends without blocking: one value is enough.
func nudge(ready chan<- struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}

// tell turns new flags into events, and takes the process over from the board
// when it is over.
func (p *proc) tell() {
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
	fresh := flags &^ p.told
	p.told |= flags
	if flags&board.FlagExited != 0 {
		p.stopIdle()
	}
	p.mu.Unlock()
	if fresh&board.FlagExited != 0 {
		e := p.slot.Exit()
		p.m.watchers.Tell(process.Event{Kind: process.EventExited, ID: p.id, PID: p.pid, Exit: e, Time: e.Time})
	}
	if fresh&board.FlagTreeGone != 0 {
		p.m.watchers.Tell(process.Event{Kind: process.EventTreeGone, ID: p.id, PID: p.pid, Time: time.Now()})
	}
	if fresh&board.FlagNoSpace != 0 {
		p.m.noSpace()
	}
	if flags&board.FlagNoSpace == 0 {
		p.mu.Lock()
		p.told &^= board.FlagNoSpace
		p.mu.Unlock()
	}
	if flags&board.FlagFinal != 0 {
		pr := p.board()
		p.took.CompareAndSwap(nil, p.inputTaken())
		p.ended.CompareAndSwap(0, spool.BootTime())
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
	in := process.Info{ID: p.id, PID: p.pid, Spec: *p.spec.Load(), Started: p.started, Exit: pr.Exit, TreeGone: pr.TreeGone, Pinned: p.pinned.Load()}
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
	if err := p.readable(); err != nil {
		return nil, err
	}
	return spool.NewReader(p.dir, p.id, p.streams(), p, opts)
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
	if keep <= 0 || time.Duration(spool.BootTime()-p.ended.Load()) < keep {
		return false
	}
	p.m.tidy()
	return true
}

// Signal implements process.Process.
func (p *proc) Signal(ctx context.Context, sig int, scope process.Scope) error {
	if sig < 0 || sig > 64 {
		return &process.InvalidError{Field: "signal", Reason: fmt.Sprintf("is %d; 0 to 64 are signals", sig)}
	}
	if scope > process.ScopeGroup {
		return &process.InvalidError{Field: "scope", Reason: "is unknown"}
	}
	_, _, err := p.call(ctx, wire.OpSignal, false, func(e *wire.Enc) { e.U32(uint32(sig)); e.U8(uint8(scope)) })
	return err
}

// Kill implements process.Process.
func (p *proc) Kill(ctx context.Context) (process.KillResult, error) {
	return p.kill(ctx, process.CauseKilled)
}

func (p *proc) kill(ctx context.Context, cause process.Cause) (process.KillResult, error) {
	rep, repeated, err := p.call(ctx, wire.OpKillNamed, true, func(e *wire.Enc) { e.U8(uint8(cause)) })
	if _, invalid := errors.AsType[*process.InvalidError](err); invalid || errors.Is(err, process.ErrUnsupported) { // a keeper of before
		rep, repeated, err = p.call(ctx, wire.OpKill, true, func(e *wire.Enc) { e.U8(uint8(cause)) })
	}
	if errors.Is(err, process.ErrExited) && repeated {
		return process.KillResult{Verified: true}, nil // our first try did it
	}
	if err != nil {
		return process.KillResult{}, err
	}
	k, err := wire.ParseKilled(rep.body)
	if err != nil {
		return process.KillResult{}, err
	}
	out := process.KillResult{Verified: k.Verified}
	for _, pid := range k.Survivors {
		out.Survivors = append(out.Survivors, int(pid))
	}
	for _, pid := range k.Strays {
		out.Strays = append(out.Strays, int(pid))
	}
	for i, pid := range slices.Concat(out.Survivors, out.Strays) {
		if i < len(k.Names) {
			if out.Names == nil {
				out.Names = map[int]string{}
			}
			out.Names[pid] = k.Names[i]
		}
	}
	return out, nil
}

// Resize implements process.Process.
func (p *proc) Resize(ctx context.Context, r process.Resize) (before process.Size, err error) {
	if p.spec.Load().PTY == nil {
		return before, process.ErrNoPTY
	}
	rep, _, err := p.call(ctx, wire.OpResize, true, func(e *wire.Enc) {
		e.U32(uint32(r.To.Cols))
		e.U32(uint32(r.To.Rows))
		if r.Only != nil {
			e.U32(uint32(r.Only.Cols))
			e.U32(uint32(r.Only.Rows))
		}
	})
	if err != nil {
		return before, err
	}
	d := wire.Dec{B: rep.body}
	before = process.Size{Cols: uint16(d.U32()), Rows: uint16(d.U32())}
	if d.Err() != nil { // a keeper of before does not tell it
		return process.Size{}, nil
	}
	return before, nil
}

// Trim implements process.Process.
func (p *proc) Trim(ctx context.Context, s process.Stream, before int64) error {
	if s < process.Stdout || s > process.PTY {
		return &process.InvalidError{Field: "stream", Reason: "is no output stream"}
	}
	if p.over() {
		return process.ErrNotFound
	}
	if p.final.Load() != nil {
		return p.trimFinished(s, before)
	}
	_, _, err := p.call(ctx, wire.OpTrim, true, func(e *wire.Enc) { e.U8(uint8(s)); e.U64(uint64(before)) })
	if errors.Is(err, process.ErrExited) {
		// Over a moment ago: the keeper leaves its files to us.
		if p.awaitFinal(ctx, settle); p.final.Load() != nil {
			return p.trimFinished(s, before)
		}
	}
	return err
}

// Wait implements process.Process.
func (p *proc) Wait(ctx context.Context, until process.Until) (process.WaitResult, error) {
	return observe.Wait(ctx, onlooker{p}, until)
}

// onlooker reads without counting as a reader: who waits for a condition does
// not keep a process alive that lives for its readers.
type onlooker struct{ *proc }

func (o onlooker) Read(_ context.Context, opts process.ReadOptions) (process.Reader, error) {
	if err := o.readable(); err != nil {
		return nil, err
	}
	return spool.NewReader(o.dir, o.id, o.streams(), o, opts)
}

// Progress implements spool.Source. An exit ends a wait at once, even if there
// is no room for the output before it.
func (o onlooker) Progress() spool.Progress {
	p := o.proc.Progress()
	p.Held = false
	return p
}

// Subscribe implements spool.Source.
func (o onlooker) Subscribe(ready chan<- struct{}) (cancel func()) { return o.listen(ready) }

// call asks the keeper about this process.
func (p *proc) call(ctx context.Context, op byte, again bool, body func(*wire.Enc)) (reply, bool, error) {
	if p.over() {
		return reply{}, false, process.ErrNotFound
	}
	if !p.live || p.final.Load() != nil {
		return reply{}, false, process.ErrExited
	}
	var e wire.Enc
	p.ref.Append(&e)
	if body != nil {
		body(&e)
	}
	rep, repeated, err := p.m.link.call(ctx, op, e.B, again)
	if err != nil {
		return rep, repeated, err
	}
	if rep.werr != nil {
		if rep.werr.Code == wire.CodeNotFound { // retired: it is over
			return rep, repeated, process.ErrExited
		}
		return rep, repeated, domainError(rep.werr, "")
	}
	return rep, repeated, nil
}

// startIdle and stopIdle run Spec.KillWithoutReaders. p.mu is held.
func (p *proc) startIdle() {
	d := p.spec.Load().KillWithoutReaders
	if d <= 0 || !p.live || p.idle != nil || p.Progress().Exit != nil {
		return
	}
	p.idle = time.AfterFunc(d, func() {
		p.mu.Lock()
		if p.readers > 0 || p.idle == nil {
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if _, err := p.kill(context.Background(), process.CauseNoReaders); err != nil && !errors.Is(err, process.ErrExited) {
			p.m.cfg.Log.Error("process without readers could not be killed, trying again", "id", p.id, "err", err)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.readers == 0 {
				p.idle = nil
				p.startIdle()
			}
		}
	})
}

func (p *proc) stopIdle() {
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
}

// isStopped reads the state letter of /proc/PID/stat.
func isStopped(pid int) bool {
	var buf [128]byte
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/stat", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, _ := unix.Read(fd, buf[:])
	for i := n - 3; i > 0; i-- {
		if buf[i] == ')' && buf[i+1] == ' ' {
			return buf[i+2] == 'T' || buf[i+2] == 't'
		}
	}
	return false
}
