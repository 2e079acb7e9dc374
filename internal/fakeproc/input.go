//go:build linux

package fakeproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

const (
	// window is how much input may wait for a process that does not read, in
	// bytes, before writers wait, and queueMost for those who do not.
	window    = 1 << 20
	queueMost = 8 << 20
	// restWithin is how long others wait for the rest of a write.
	restWithin = 10 * time.Second
)

// input is the writing side of stdin or of the terminal. The mutex of its
// process guards all but turn and room.
type input struct {
	file     *os.File
	open     bool  // the process may still read
	broken   bool  // it closed its end by itself
	eof      bool  // nothing may be added any more
	accepted int64 // bytes taken from writers
	buf      []byte
	more     *sync.Cond    // there is something to feed, or an end; its lock is the process's
	turn     chan struct{} // one token: writers take turns, so that the bytes of one write stay together
	room     chan struct{} // receives when buf shrank or the input ended

	writers []wrote       // the one that wrote last comes last
	forgot  bool          // a writer was forgotten
	goesOn  string        // the writer in the middle of a write
	since   time.Time     // when its last part came
	rest    chan struct{} // closed when goesOn ends; nil if nobody waits
}

// wrote is what was taken of a writer, in bytes.
type wrote struct {
	name  string
	taken int64
}

func (in *input) wroteBy(name string) int {
	return slices.IndexFunc(in.writers, func(w wrote) bool { return w.name == name })
}

// note remembers that n bytes of a writer were accepted.
func (in *input) note(name string, n int64) {
	w := wrote{name: name}
	if i := in.wroteBy(name); i >= 0 {
		w = in.writers[i]
		in.writers = slices.Delete(in.writers, i, i+1)
	} else if len(in.writers) == process.Writers {
		in.writers, in.forgot = in.writers[1:], true
	}
	w.taken += n
	in.writers = append(in.writers, w)
}

// Write implements process.Process.
func (p *proc) Write(ctx context.Context, in process.Input) (process.Accepted, error) {
	if err := in.Validate(); err != nil {
		return process.Accepted{}, err
	}
	if in.EOF && p.spec.PTY != nil {
		return process.Accepted{}, process.ErrPTY
	}
	if acc, done, err := p.unwritable(&in); done {
		return acc, err
	}
	if len(in.Data) == 0 {
		return p.closeInput(&in) // does not queue behind a writer who waits for room
	}
	if err := p.takeTurn(ctx, &in); err != nil {
		return process.Accepted{}, err
	}
	defer func() { p.in.turn <- struct{}{} }()
	data := in.Data
	for first := true; ; first = false {
		if acc, done, err := p.unwritable(&in); done {
			return acc, err
		}
		p.mu.Lock()
		if first {
			var err error
			if data, err = p.untaken(&in); err != nil {
				defer p.mu.Unlock()
				return p.acceptedOf(in.Writer), err
			}
		}
		n := min(len(data), process.MaxWhole)
		switch waiting := len(p.in.buf); {
		case in.NoWait && waiting > 0 && waiting+len(data) > queueMost:
			defer p.mu.Unlock()
			return p.acceptedOf(in.Writer), process.ErrInputFull
		case in.NoWait:
			n = len(data)
		case waiting >= window:
			n = 0
		}
		p.acceptInput(&in, data[:n], n < len(data))
		if data = data[n:]; len(data) == 0 {
			p.in.eof = p.in.eof || in.EOF
			p.in.more.Signal()
			defer p.mu.Unlock()
			return p.acceptedOf(in.Writer), nil
		}
		p.in.more.Signal()
		p.mu.Unlock()
		select {
		case <-p.in.room:
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			if !in.More {
				p.in.wentOn()
			}
			return p.acceptedOf(in.Writer), ctx.Err()
		}
	}
}

// acceptInput accepts data. p.mu is held.
func (p *proc) acceptInput(in *process.Input, data []byte, rest bool) {
	if len(data) == 0 {
		return
	}
	p.in.buf = append(p.in.buf, data...)
	p.in.accepted += int64(len(data))
	p.in.wentOn()
	if in.Writer != "" {
		p.in.note(in.Writer, int64(len(data)))
		if in.More || rest {
			p.in.goesOn, p.in.since = in.Writer, time.Now()
		}
	}
}

// wentOn wakes the writers that wait for the rest of a write.
func (in *input) wentOn() {
	in.goesOn = ""
	if in.rest != nil {
		close(in.rest)
		in.rest = nil
	}
}

// takeTurn waits for the turn, and for the rest of another's write.
func (p *proc) takeTurn(ctx context.Context, in *process.Input) error {
	for {
		select {
		case <-p.in.turn:
		default:
			p.mu.Lock()
			full := in.NoWait && len(p.in.buf) >= window
			p.mu.Unlock()
			if full {
				return process.ErrInputFull
			}
			select {
			case <-p.in.turn:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		p.mu.Lock()
		wait := time.Duration(0)
		if p.in.goesOn != "" && p.in.goesOn != in.Writer {
			wait = restWithin - time.Since(p.in.since)
			if p.in.rest == nil {
				p.in.rest = make(chan struct{})
			}
		}
		rest := p.in.rest
		p.mu.Unlock()
		if wait <= 0 {
			return nil
		}
		p.in.turn <- struct{}{}
		late := time.NewTimer(wait)
		select {
		case <-rest:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// untaken returns what of a write was not taken before. p.mu is held.
func (p *proc) untaken(in *process.Input) ([]byte, error) {
	size := int64(len(in.Data))
	if in.Offset == nil {
		return in.Data, nil
	}
	at := *in.Offset
	if in.Writer == "" {
		if at > p.in.accepted {
			return nil, fmt.Errorf("%w: %d bytes of input were taken, the write is for %d", process.ErrOffset, p.in.accepted, at)
		}
		return in.Data[min(size, p.in.accepted-at):], nil
	}
	taken := int64(0)
	if i := p.in.wroteBy(in.Writer); i >= 0 {
		taken = p.in.writers[i].taken
	} else if at > 0 || in.Again && p.in.forgot {
		return nil, process.ErrWriterForgotten
	}
	if at > taken {
		return nil, process.ErrOffset
	}
	return in.Data[min(size, taken-at):], nil
}

// closeInput takes a write without data: it ends the input, if that was asked.
func (p *proc) closeInput(in *process.Input) (process.Accepted, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := p.acceptedOf(in.Writer)
	mine := acc.Offset
	if in.Writer != "" {
		mine = acc.Written
		if p.in.goesOn == in.Writer && !in.More {
			p.in.wentOn()
		}
	}
	if in.Offset != nil && *in.Offset > mine && (in.Writer == "" || mine > 0) {
		return acc, fmt.Errorf("%w: %d bytes of input were taken, the end is for %d", process.ErrOffset, mine, *in.Offset)
	}
	if in.EOF {
		p.in.eof = true
		p.in.more.Signal()
		wake(p.in.room) // a writer who waits gives up
	}
	return acc, nil
}

// acceptedOf says what was taken, of a writer too. p.mu is held.
func (p *proc) acceptedOf(writer string) process.Accepted {
	acc := process.Accepted{Offset: p.in.accepted}
	if i := p.in.wroteBy(writer); i >= 0 {
		acc.Written = p.in.writers[i].taken
	}
	return acc
}

// unwritable tells why nothing more can be written. The repeat of a write that
// was taken before is acknowledged.
func (p *proc) unwritable(in *process.Input) (process.Accepted, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in.open && p.exit == nil && p.in.left() {
		p.in.broken = true
		p.stopFeeding()
	}
	acc := p.acceptedOf(in.Writer)
	mine := acc.Offset
	if in.Writer != "" {
		mine = acc.Written
	}
	repeat := in.Offset != nil && *in.Offset <= mine-int64(len(in.Data)) && (len(in.Data) > 0 || in.EOF) && (p.in.eof || !in.EOF)
	switch {
	case p.removed:
		return acc, true, process.ErrNotFound
	case (p.exit != nil || p.in.eof || !p.in.open) && repeat:
		return acc, true, nil
	case p.exit != nil:
		return acc, true, process.ErrExited
	case p.in.broken:
		return acc, true, process.ErrBrokenPipe
	case !p.in.open || p.in.eof:
		return acc, true, process.ErrStdinClosed
	}
	return acc, false, nil
}

// left reports whether nobody has the reading end open any more.
func (in *input) left() (left bool) {
	raw, err := in.file.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		left = err == nil && n == 1 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return left && err == nil
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
			p.in.broken = p.exit == nil && errors.Is(err, syscall.EPIPE)
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
