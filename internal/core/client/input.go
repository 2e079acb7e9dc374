//go:build linux

package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/stdin"
	"github.com/tend-run/tend/process"
)

const (
	// window is how much input may wait in memory for a process that does not
	// read, in bytes, before writers wait; one more write fits behind it.
	window = 1 << 20
	// queueMost is the same for writers that do not wait, and queueAll what waits
	// for all processes while one has more than the window.
	queueMost = 8 << 20
	queueAll  = 128 << 20
	// maxOver is how many writers that have given up are remembered.
	maxOver = 64
	// restWithin is how long others wait for the rest of a write.
	restWithin = 10 * time.Second
)

// input is the writing side of one process. turn holds one token: writers take
// turns, so that the bytes of one write stay together.
type input struct {
	turn  chan struct{} // made under proc.mu
	stall chan struct{} // closed while the writer that has the turn waits for room; guarded by mu

	mu   sync.Mutex
	feed *stdin.Feed // the server's own copies of the descriptors; guarded by mu
	// table remembers the writers; it is kept when feed is closed. Guarded by mu.
	table *stdin.Table
	now   []string // writers of the writes under way; guarded by mu
	// over are the last writers that have given up. What is still on its way of them, on another
	// connection, is not accepted. Guarded by mu.
	over []string

	behind atomic.Int32 // writers that wait for the rest of another's write
}

// begin notes a write under way of a writer, until over is called.
func (q *input) begin(writer string) (over func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.now = append(q.now, writer)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		i := slices.Index(q.now, writer)
		q.now = slices.Delete(q.now, i, i+1)
	}
}

// Write implements process.Process. The bytes go to the memfd from which the
// keeper feeds the process, at their offsets; once the board says that they
// are accepted they are delivered, whichever role dies.
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
	if len(in.Data) > 0 || in.Writer != "" && !in.EOF { // which ends a write, perhaps one of a former server
		if err := p.openInput(ctx); errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrStdinClosed) {
			return p.repeated(in, err)
		} else if err != nil {
			return process.Accepted{}, err
		}
	}
	if len(in.Data) == 0 {
		// Closing does not queue behind a writer that waits for room.
		return p.closeInput(in)
	}
	defer p.input.begin(in.Writer)()
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
	switch {
	case err == nil:
	case in.Writer != "" && ctx.Err() != nil:
		p.awaitRest(in.Writer)
	case in.Writer != "" && !in.More:
		p.finishWrite(in.Writer, false)
	}
	if err != nil {
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
			p.finishWrite(in.Writer, !in.EOF && in.Offset != nil && *in.Offset == 0)
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
		p.notifyFeed()
		p.changed() // a writer that waits for room gives up
	}
	return acc, nil
}

// finishWrite wakes the writers that wait for the rest of a write. over: the writer has given up,
// unless it has not begun.
func (p *proc) finishWrite(writer string, over bool) {
	q := &p.input
	q.mu.Lock()
	known := slices.Contains(q.now, writer)
	if q.table != nil && !known {
		_, known = q.table.Taken(writer)
	}
	if over && known && !slices.Contains(q.over, writer) {
		q.over = append(q.over[max(0, len(q.over)-maxOver+1):], writer)
	}
	if q.feed != nil && q.table != nil {
		_ = q.table.Finish(writer) // else they wait for as long as restWithin lasts
	}
	q.mu.Unlock()
	if q.behind.Load() > 0 {
		p.changed()
	}
}

// awaitRest lets others wait once more for the rest of a write that broke off: its
// connection may be lost, and then the writer sends it again.
func (p *proc) awaitRest(writer string) {
	q := &p.input
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.table != nil && !slices.Contains(q.over, writer) {
		q.table.Await(writer)
	}
}

// takeTurn waits until no other writer writes, and until none is in the middle of
// a write of several parts.
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
		var stalled <-chan struct{} // nil, which never fires, for writers that wait
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
		select {
		case <-ready:
		case <-time.After(wait):
		case <-ctx.Done():
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

// stalled returns a channel that is closed when the writer that has the turn waits
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
