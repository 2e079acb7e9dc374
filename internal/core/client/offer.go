//go:build linux

package client

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/stdin"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// openInput asks for the memfd at the first write.
func (p *proc) openInput(ctx context.Context) error {
	p.input.mu.Lock()
	defer p.input.mu.Unlock()
	if p.input.feed != nil {
		return nil
	}
	rep, _, err := p.call(ctx, wire.OpStdin, true, p.ref)
	if err != nil {
		return err
	}
	f := &stdin.Feed{Slot: p.slot, StageR: -1, StageW: -1}
	switch len(rep.fds) {
	case 2:
		f.Mem, f.Out = rep.fds[0], rep.fds[1]
	case 4:
		f.Mem, f.Out, f.StageR, f.StageW = rep.fds[0], rep.fds[1], rep.fds[2], rep.fds[3]
	default:
		unixsock.Close(rep.fds)
		return process.ErrUnavailable
	}
	table, err := stdin.ReadTable(f.Mem, p.slot.End(process.Stdin), true)
	if err != nil {
		unixsock.Close(rep.fds)
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
			return len(data), p.store(ctx, in, data, at, false)
		case waiting < window:
			n := min(len(data), process.MaxWhole)
			return n, p.store(ctx, in, data[:n], at, n < len(data))
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
	for p := range m.running {
		all += p.slot.End(process.Stdin) - p.slot.Base(process.Stdin)
	}
	return all <= queueAll
}

// store accepts data at its offset and delivers it. If the pipe is full, the keeper
// delivers it when there is room. rest: more of the write follows. Nothing is accepted of
// a caller that has given up: others may have been let in by now.
func (p *proc) store(ctx context.Context, in *process.Input, data []byte, at int64, rest bool) error {
	q := &p.input
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if slices.Contains(q.over, in.Writer) {
		return process.ErrWriterForgotten
	}
	if q.feed == nil {
		if err := p.writable(); err != nil {
			return err
		}
		return process.ErrStdinClosed
	}
	end := at + int64(len(data))
	if _, err := eintr.Pwrite(q.feed.Mem, data, at); err != nil {
		return err
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
		// The keeper may have delivered it meanwhile, and the program have ended by that.
		if q.feed.Abandoned() && !q.feed.Delivered(end) {
			return process.ErrBrokenPipe
		}
		return nil
	}
	switch q.feed.Run(os.Getpid()) {
	case stdin.Full:
		p.notifyFeed()
	case stdin.Broken:
		p.slot.Set(board.FlagStdinBroken)
		p.notifyFeed()
		if !q.feed.Delivered(end) {
			return process.ErrBrokenPipe
		}
	}
	return nil
}

// notifyFeed asks the keeper to go on with the input: to wait for room, or to close
// it.
func (p *proc) notifyFeed() { p.m.link.notify(wire.OpFeed, p.ref) }

// endInput closes the descriptors of the input.
func (p *proc) endInput() {
	p.input.mu.Lock()
	defer p.input.mu.Unlock()
	p.input.drop()
}

// drop closes the descriptors, if they are open. in.mu is held.
func (in *input) drop() {
	if f := in.feed; f != nil {
		unixsock.Close([]int{f.Mem, f.Out, f.StageR, f.StageW}) // the last two may be -1
		in.feed = nil
	}
}
