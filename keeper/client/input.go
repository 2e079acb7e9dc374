//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/feed"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

const (
	// window is how much input may wait in memory for a process that does not
	// read, in bytes, before writers wait; one more write fits behind it.
	window = 1 << 20
	// queueMost is the same for writers that do not wait, and queueAll what waits
	// for all processes while one has more than the window.
	queueMost = 8 << 20
	queueAll  = 128 << 20
	// restWithin is how long others wait for the rest of a write.
	restWithin = 10 * time.Second
)

// input is the writing side of one process. turn holds one token: writers take
// turns, so that the bytes of one write stay together.
type input struct {
	turn  chan struct{} // made under proc.mu
	stall chan struct{} // closed while the one who has the turn waits for room; guarded by mu

	mu   sync.Mutex
	feed *feed.Feed // the server's own copies of the descriptors; guarded by mu
	// table remembers the writers; it is kept when feed is closed. Guarded by mu.
	table *feed.Table

	behind atomic.Int32 // writers who wait for the rest of another's write
}

// Write implements process.Process. The bytes go to the memfd from which the
// keeper feeds the process, at their offsets; once the board says that they
// are accepted they are delivered whoever dies.
func (p *proc) Write(ctx context.Context, in process.Input) (process.Accepted, error) {
	if err := in.Validate(); err != nil {
		if over := p.writable(); over != nil { // it would not be taken if it were right
			return process.Accepted{}, over
		}
		return process.Accepted{}, err
	}
	if in.EOF && p.spec.Load().PTY != nil {
		return process.Accepted{}, process.ErrPTY
	}
	if err := p.writable(); err != nil {
		return p.repeated(in, err)
	}
	if len(in.Data) == 0 {
		// Closing does not queue behind a writer who waits for room.
		return p.closeInput(in)
	}
	if err := p.openInput(ctx); errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrStdinClosed) {
		return p.repeated(in, err)
	} else if err != nil {
		return process.Accepted{}, err
	}
	if err := p.takeTurn(ctx, &in); err != nil {
		return process.Accepted{}, err
	}
	defer func() { p.input.turn <- struct{}{} }()
	data, err := p.untaken(&in)
	for err == nil && len(data) > 0 {
		var n int
		n, err = p.offer(ctx, &in, data)
		data = data[n:]
	}
	if err != nil {
		if !in.More && in.Writer != "" {
			p.finishWrite(in.Writer)
		}
		return p.accepted(in.Writer), err
	}
	acc := p.accepted(in.Writer)
	if in.EOF {
		closed, err := p.closeInput(process.Input{Writer: in.Writer, EOF: true})
		if errors.Is(err, process.ErrExited) {
			return acc, nil // all was taken, and the program has ended since
		}
		return closed, err
	}
	return acc, nil
}

// accepted says what was taken, of a writer too.
func (p *proc) accepted(writer string) process.Accepted {
	a := process.Accepted{Offset: p.slot.End(process.Stdin)}
	if writer != "" {
		p.input.mu.Lock()
		defer p.input.mu.Unlock()
		if t := p.input.table; t != nil {
			a.Written, _ = t.Taken(writer)
		}
	}
	return a
}

// untaken returns what of a write was not taken before. The caller has the turn.
func (p *proc) untaken(in *process.Input) ([]byte, error) {
	q := &p.input
	q.mu.Lock()
	defer q.mu.Unlock()
	accepted := p.slot.End(process.Stdin)
	size := int64(len(in.Data))
	switch {
	case in.Offset == nil:
		return in.Data, nil
	case in.Writer == "":
		at := *in.Offset
		if at > accepted {
			return nil, process.ErrOffset
		}
		return in.Data[min(size, accepted-at):], nil
	}
	taken, known := q.table.Taken(in.Writer)
	switch {
	case !known && (*in.Offset > 0 || in.Again && q.table.Forgot()):
		return nil, process.ErrWriterForgotten
	case *in.Offset > taken:
		return nil, process.ErrOffset
	}
	return in.Data[min(size, taken-*in.Offset):], nil
}

// repeated acknowledges a write that was applied before stdin was closed, or
// before the process ended.
func (p *proc) repeated(in process.Input, err error) (process.Accepted, error) {
	if in.Offset == nil {
		return process.Accepted{}, err
	}
	took := p.took.Load()
	if took == nil {
		took = p.inputTaken()
		if p.slot.Gen() != p.ref.Gen {
			return process.Accepted{}, err
		}
	}
	acc := process.Accepted{Offset: took.Accepted}
	mine := took.Accepted
	if in.Writer != "" {
		taken, known := p.takenOf(in.Writer)
		if !known && (*in.Offset > 0 || len(in.Data) > 0) {
			return process.Accepted{}, err
		}
		acc.Written, mine = taken, taken
	}
	if *in.Offset > mine-int64(len(in.Data)) || in.EOF && !took.EOF || len(in.Data) == 0 && !in.EOF {
		return process.Accepted{}, err
	}
	return acc, nil
}

// takenOf returns what was taken of a writer of an input that is closed.
func (p *proc) takenOf(writer string) (taken int64, known bool) {
	p.input.mu.Lock()
	table := p.input.table
	if table != nil {
		taken, known = table.Taken(writer)
	}
	p.input.mu.Unlock()
	if table != nil {
		return taken, known
	}
	if j, err := spool.ReadJournal(p.dir); err == nil {
		taken, known = j.Writers.Taken[writer]
	}
	return taken, known
}

// inputTaken is what was taken of the input of a process on the board.
func (p *proc) inputTaken() *spool.Input {
	return &spool.Input{Accepted: p.slot.End(process.Stdin), EOF: p.slot.Wishes()&board.StdinEOF != 0}
}

// writable reports why nothing more can be written.
func (p *proc) writable() error {
	if !p.live || p.final.Load() != nil {
		return process.ErrExited
	}
	flags := p.slot.Flags()
	switch {
	case flags&board.FlagExited != 0:
		return process.ErrExited
	case flags&board.FlagStdinBroken != 0:
		return process.ErrBrokenPipe
	case flags&board.FlagStdinOpen == 0, p.slot.Wishes()&board.StdinEOF != 0:
		return process.ErrStdinClosed
	}
	return nil
}

func (p *proc) closeInput(in process.Input) (process.Accepted, error) {
	acc := p.accepted(in.Writer)
	mine := acc.Offset
	if in.Writer != "" {
		mine = acc.Written
		if !in.More {
			p.finishWrite(in.Writer)
		}
	}
	if in.Offset != nil && *in.Offset > mine && (in.Writer == "" || mine > 0) {
		return acc, process.ErrOffset
	}
	if in.EOF {
		p.input.mu.Lock()
		if p.final.Load() != nil { // the slot may be another's by now
			p.input.mu.Unlock()
			return p.repeated(in, process.ErrExited)
		}
		p.slot.SetWishes(board.StdinEOF)
		p.input.drop() // our copy would keep the pipe open
		p.input.mu.Unlock()
		p.tellFeed()
		p.changed() // a writer who waits for room gives up
	}
	return acc, nil
}

// finishWrite wakes the writers that wait for the rest of a write.
func (p *proc) finishWrite(writer string) {
	q := &p.input
	q.mu.Lock()
	if q.feed != nil && q.table != nil {
		_ = q.table.Finish(writer) // else they wait for as long as restWithin lasts
	}
	q.mu.Unlock()
	if q.behind.Load() > 0 {
		p.changed()
	}
}

// takeTurn waits until the one who writes is ready, and whoever is in the
// middle of a write.
func (p *proc) takeTurn(ctx context.Context, in *process.Input) error {
	q := &p.input
	p.mu.Lock()
	if q.turn == nil {
		q.turn = make(chan struct{}, 1)
		q.turn <- struct{}{}
	}
	p.mu.Unlock()
	var ready chan struct{}
	for {
		var stalled <-chan struct{} // never, for those who wait
		if in.NoWait {
			stalled = q.stalled()
		}
		select {
		case <-q.turn:
		default:
			select {
			case <-q.turn:
			case <-stalled:
				return process.ErrInputFull
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		wait := p.behindWhom(in.Writer)
		if wait <= 0 {
			return nil
		}
		q.turn <- struct{}{}
		if err := p.writable(); err != nil {
			return err
		}
		if ready == nil {
			ready = make(chan struct{}, 1)
			defer p.listen(ready)()
			q.behind.Add(1)
			defer q.behind.Add(-1)
			continue // look once more: it may have ended before we listened
		}
		late := time.NewTimer(wait)
		select {
		case <-ready:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// behindWhom returns how long to wait at most for the rest of another's write.
func (p *proc) behindWhom(writer string) time.Duration {
	q := &p.input
	q.mu.Lock()
	defer q.mu.Unlock()
	name, since := q.table.GoingOn(p.slot.End(process.Stdin))
	if name == "" || name == writer {
		return 0
	}
	return restWithin - time.Since(since)
}

// stalled returns a channel that is closed when the one who has the turn waits
// for room.
func (in *input) stalled() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stall == nil {
		in.stall = make(chan struct{})
	}
	return in.stall
}

// stalling begins a wait for room; call what it returns at its end.
func (in *input) stalling() (over func()) {
	in.stalled()
	in.mu.Lock()
	defer in.mu.Unlock()
	close(in.stall)
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.stall = nil
	}
}

// openInput asks for the memfd at the first write.
func (p *proc) openInput(ctx context.Context) error {
	p.input.mu.Lock()
	defer p.input.mu.Unlock()
	if p.input.feed != nil {
		return nil
	}
	rep, _, err := p.call(ctx, wire.OpStdin, true, nil)
	if err != nil {
		return err
	}
	f := &feed.Feed{Slot: p.slot, StageR: -1, StageW: -1}
	switch len(rep.fds) {
	case 2:
		f.Mem, f.Out = rep.fds[0], rep.fds[1]
	case 4:
		f.Mem, f.Out, f.StageR, f.StageW = rep.fds[0], rep.fds[1], rep.fds[2], rep.fds[3]
	default:
		closeFDs(rep.fds)
		return process.ErrUnavailable
	}
	table, err := feed.ReadTable(f.Mem, p.slot.End(process.Stdin), true)
	if err != nil {
		closeFDs(rep.fds)
		return fmt.Errorf("read the writers of the input: %w", err)
	}
	p.input.feed, p.input.table = f, table
	if err := p.writable(); err != nil { // closed meanwhile
		p.input.drop()
		return err
	}
	return nil
}

// offer accepts as much as there is room for, and waits while there is none.
func (p *proc) offer(ctx context.Context, in *process.Input, data []byte) (int, error) {
	var ready chan struct{}
	for {
		if err := p.writable(); err != nil {
			return 0, err
		}
		at := p.slot.End(process.Stdin)
		waiting := at - p.slot.Base(process.Stdin)
		switch {
		case in.NoWait && !p.m.mayQueue(waiting, int64(len(data))):
			return 0, process.ErrInputFull
		case in.NoWait:
			return len(data), p.store(in, data, at, false)
		case waiting < window:
			n := min(len(data), process.MaxWhole)
			return n, p.store(in, data[:n], at, n < len(data))
		}
		if ready == nil {
			ready = make(chan struct{}, 1)
			defer p.listen(ready)()
			defer p.input.stalling()()
			continue // look once more: it may have moved before we listened
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// mayQueue decides whether n bytes more may wait for a process that has some
// waiting already. One write may be as large as it is.
func (m *Manager) mayQueue(waiting, n int64) bool {
	switch {
	case waiting+n <= window:
		return true
	case waiting > 0 && waiting+n > queueMost:
		return false
	}
	all := n
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.slots {
		if p != nil {
			all += p.slot.End(process.Stdin) - p.slot.Base(process.Stdin)
		}
	}
	return all <= queueAll
}

// store accepts data at its offset and delivers it, unless the pipe is full:
// then the keeper does, when there is room. rest: more of the write follows.
func (p *proc) store(in *process.Input, data []byte, at int64, rest bool) error {
	q := &p.input
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.feed == nil {
		if err := p.writable(); err != nil {
			return err
		}
		return process.ErrStdinClosed
	}
	end := at + int64(len(data))
	for rest, to := data, at; len(rest) > 0; {
		n, err := unix.Pwrite(q.feed.Mem, rest, to)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		rest, to = rest[n:], to+int64(n)
	}
	if in.Writer != "" {
		if err := q.table.Note(in.Writer, end-at, end, in.More || rest); err != nil {
			return fmt.Errorf("remember the writer of the input: %w", err)
		}
		if q.behind.Load() > 0 && !in.More && !rest {
			defer p.changed()
		}
	} else if err := q.table.NoteOther(end); err != nil {
		return fmt.Errorf("remember the end of the input: %w", err)
	}
	failpoint.Hit(failpoint.InputWritten)
	p.slot.SetEnd(process.Stdin, end)
	failpoint.Hit(failpoint.InputAccepted)
	if p.slot.Flags()&board.FlagFeedArmed != 0 {
		if q.feed.Abandoned() {
			return process.ErrBrokenPipe
		}
		return nil
	}
	switch q.feed.Run(os.Getpid()) {
	case feed.Full:
		p.tellFeed()
	case feed.Broken:
		p.slot.Set(board.FlagStdinBroken)
		p.tellFeed()
		return process.ErrBrokenPipe
	}
	return nil
}

// listen is Subscribe without counting as a reader.
func (p *proc) listen(ready chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(ready)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subs, ready)
	}
}

// tellFeed tells the keeper to go on with the input: to wait for room, or to
// close it.
func (p *proc) tellFeed() {
	var e wire.Enc
	p.ref.Append(&e)
	p.m.link.tell(wire.OpFeed, e.B)
}

// endInput lets go of the descriptors.
func (p *proc) endInput() {
	p.input.mu.Lock()
	defer p.input.mu.Unlock()
	p.input.drop()
}

// drop closes the descriptors. in.mu is held.
func (in *input) drop() {
	if f := in.feed; f != nil {
		closeFDs([]int{f.Mem, f.Out})
		if f.StageR >= 0 {
			closeFDs([]int{f.StageR, f.StageW})
		}
		in.feed = nil
	}
}
