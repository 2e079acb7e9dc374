//go:build linux

package fakeproc

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
)

// window is how much input may wait for a process that does not read, in
// bytes.
const window = 1 << 20

// input is the writing side of stdin or of the terminal. The mutex of its
// process guards all but turn and room.
type input struct {
	file     *os.File
	open     bool  // the process may still read
	eof      bool  // nothing may be added any more
	accepted int64 // bytes taken from writers
	buf      []byte
	more     *sync.Cond    // there is something to feed, or an end; its lock is the process's
	turn     chan struct{} // one token: writers take turns, so that the bytes of one write stay together
	room     chan struct{} // receives when buf shrank or the input ended
}

// Write implements process.Process.
func (p *proc) Write(ctx context.Context, in process.Input) (process.Accepted, error) {
	if in.EOF && p.spec.PTY != nil {
		return process.Accepted{}, process.ErrPTY
	}
	if acc, done, err := p.unwritable(&in); done {
		return acc, err
	}
	if len(in.Data) == 0 {
		return p.closeInput(&in) // does not queue behind a writer who waits for room
	}
	select {
	case <-p.in.turn:
	case <-ctx.Done():
		return process.Accepted{}, ctx.Err()
	}
	defer func() { p.in.turn <- struct{}{} }()
	data := in.Data
	for first := true; ; first = false {
		if acc, done, err := p.unwritable(&in); done {
			return acc, err
		}
		p.mu.Lock()
		if first && in.Offset != nil {
			if *in.Offset < 0 || *in.Offset > p.in.accepted {
				defer p.mu.Unlock()
				return process.Accepted{Offset: p.in.accepted}, fmt.Errorf("%w: %d bytes of input were taken, the write is for %d", process.ErrOffset, p.in.accepted, *in.Offset)
			}
			data = data[min(int64(len(data)), p.in.accepted-*in.Offset):]
		}
		n := min(len(data), window-len(p.in.buf))
		p.in.buf = append(p.in.buf, data[:n]...)
		p.in.accepted += int64(n)
		if data = data[n:]; len(data) == 0 {
			p.in.eof = p.in.eof || in.EOF
			p.in.more.Signal()
			defer p.mu.Unlock()
			return process.Accepted{Offset: p.in.accepted}, nil
		}
		p.in.more.Signal()
		p.mu.Unlock()
		select {
		case <-p.in.room:
		case <-ctx.Done():
			return p.acceptedNow(), ctx.Err()
		}
	}
}

// closeInput takes a write without data: it ends the input, if that was asked.
func (p *proc) closeInput(in *process.Input) (process.Accepted, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := process.Accepted{Offset: p.in.accepted}
	if in.Offset != nil && *in.Offset > acc.Offset {
		return acc, fmt.Errorf("%w: %d bytes of input were taken, the end is for %d", process.ErrOffset, acc.Offset, *in.Offset)
	}
	if in.EOF {
		p.in.eof = true
		p.in.more.Signal()
		wake(p.in.room) // a writer who waits gives up
	}
	return acc, nil
}

func (p *proc) acceptedNow() process.Accepted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return process.Accepted{Offset: p.in.accepted}
}

// unwritable tells why nothing more can be written. The repeat of a write that
// closed stdin is acknowledged.
func (p *proc) unwritable(in *process.Input) (process.Accepted, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := process.Accepted{Offset: p.in.accepted}
	switch {
	case p.removed:
		return acc, true, process.ErrNotFound
	case p.exit != nil:
		return acc, true, process.ErrExited
	case p.in.eof && in.Offset != nil && *in.Offset >= 0 && *in.Offset+int64(len(in.Data)) <= p.in.accepted:
		return acc, true, nil
	case !p.in.open || p.in.eof:
		return acc, true, process.ErrStdinClosed
	}
	return acc, false, nil
}

// feed moves input to the process until it ends.
func (p *proc) feed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.in.open && len(p.in.buf) == 0 && !p.in.eof {
			p.in.more.Wait()
		}
		if !p.in.open || len(p.in.buf) == 0 {
			break
		}
		some := append([]byte(nil), p.in.buf[:min(len(p.in.buf), 1<<16)]...)
		p.mu.Unlock()
		n, err := p.in.file.Write(some)
		p.mu.Lock()
		p.in.buf = p.in.buf[min(n, len(p.in.buf)):]
		wake(p.in.room)
		if err != nil {
			break
		}
	}
	p.in.open, p.in.buf = false, nil
	wake(p.in.room)
	if p.spec.PTY == nil {
		p.in.file.Close()
	}
}

// stopFeeding ends the input: nobody is left to read it. p.mu is held.
func (p *proc) stopFeeding() {
	if p.in.open {
		p.in.open = false
		p.in.file.SetWriteDeadline(time.Unix(1, 0))
		p.in.more.Signal()
	}
}
