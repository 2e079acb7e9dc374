//go:build linux

package client

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/feed"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// window is how much input may wait in memory for a process that does not read.
const window = 1 << 20

// input is the writing side of one process. turn holds one token: writers take
// turns, so that the bytes of one write stay together.
type input struct {
	turn chan struct{} // made under proc.mu

	mu   sync.Mutex
	feed *feed.Feed // the server's own copies of the descriptors; guarded by mu
}

// Write implements process.Process. The bytes go to the memfd from which the
// keeper feeds the process, at their offsets; once the board says that they
// are accepted they are delivered whoever dies.
func (p *proc) Write(ctx context.Context, in process.Input) (process.Accepted, error) {
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
	if err := p.takeTurn(ctx); err != nil {
		return process.Accepted{}, err
	}
	defer func() { p.input.turn <- struct{}{} }()
	data := in.Data
	if in.Offset != nil {
		accepted := p.slot.End(process.Stdin)
		if *in.Offset < 0 || *in.Offset > accepted {
			return process.Accepted{Offset: accepted}, process.ErrOffset
		}
		data = data[min(int64(len(data)), accepted-*in.Offset):]
	}
	if err := p.openInput(ctx); err != nil {
		return process.Accepted{}, err
	}
	for len(data) > 0 {
		n, err := p.offer(ctx, data)
		if err != nil {
			return process.Accepted{Offset: p.slot.End(process.Stdin)}, err
		}
		data = data[n:]
	}
	if in.EOF {
		return p.closeInput(process.Input{EOF: true})
	}
	return process.Accepted{Offset: p.slot.End(process.Stdin)}, nil
}

// repeated acknowledges a write that was applied before stdin was closed, or
// before the process ended.
func (p *proc) repeated(in process.Input, err error) (process.Accepted, error) {
	if in.Offset == nil || *in.Offset < 0 {
		return process.Accepted{}, err
	}
	took := p.took.Load()
	if took == nil {
		took = p.inputTaken()
		if p.slot.Gen() != p.ref.Gen {
			return process.Accepted{}, err
		}
	}
	if end := *in.Offset + int64(len(in.Data)); end > took.Accepted || in.EOF && !took.EOF || len(in.Data) == 0 && !in.EOF {
		return process.Accepted{}, err
	}
	return process.Accepted{Offset: took.Accepted}, nil
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
	case flags&board.FlagStdinOpen == 0, p.slot.Wishes()&board.StdinEOF != 0:
		return process.ErrStdinClosed
	}
	return nil
}

func (p *proc) closeInput(in process.Input) (process.Accepted, error) {
	accepted := p.slot.End(process.Stdin)
	if in.Offset != nil && *in.Offset > accepted {
		return process.Accepted{Offset: accepted}, process.ErrOffset
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
	return process.Accepted{Offset: accepted}, nil
}

func (p *proc) takeTurn(ctx context.Context) error {
	p.mu.Lock()
	if p.input.turn == nil {
		p.input.turn = make(chan struct{}, 1)
		p.input.turn <- struct{}{}
	}
	p.mu.Unlock()
	select {
	case <-p.input.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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
	p.input.feed = f
	if err := p.writable(); err != nil { // closed meanwhile
		p.input.drop()
		return err
	}
	return nil
}

// offer accepts as much as there is room for, and waits while there is none.
func (p *proc) offer(ctx context.Context, data []byte) (int, error) {
	var ready chan struct{}
	for {
		if err := p.writable(); err != nil {
			return 0, err
		}
		at := p.slot.End(process.Stdin)
		if room := window - (at - p.slot.Base(process.Stdin)); room > 0 {
			n := int(min(room, int64(len(data))))
			return n, p.store(data[:n], at)
		}
		if ready == nil {
			ready = make(chan struct{}, 1)
			defer p.listen(ready)()
			continue // look once more: it may have moved before we listened
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// store accepts data at its offset and delivers it, unless the pipe is full:
// then the keeper does, when there is room.
func (p *proc) store(data []byte, at int64) error {
	in := &p.input
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.feed == nil {
		if err := p.writable(); err != nil {
			return err
		}
		return process.ErrStdinClosed
	}
	end := at + int64(len(data))
	for len(data) > 0 {
		n, err := unix.Pwrite(in.feed.Mem, data, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data, at = data[n:], at+int64(n)
	}
	failpoint.Hit(failpoint.InputWritten)
	p.slot.SetEnd(process.Stdin, end)
	failpoint.Hit(failpoint.InputAccepted)
	if p.slot.Flags()&board.FlagFeedArmed != 0 {
		return nil
	}
	if r := in.feed.Run(os.Getpid()); r == feed.Full || r == feed.Broken {
		p.tellFeed()
	}
	return nil
}

// listen is Subscribe without counting as a reader.
func (p *proc) listen(ready chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs == nil {
		p.subs = map[chan<- struct{}]struct{}{}
	}
	p.subs[ready] = struct{}{}
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
