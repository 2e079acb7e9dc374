package tend

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
)

// copies moves bytes between a process and the Stdin, Stdout and Stderr of its
// Cmd. The zero value copies nothing.
type copies struct {
	exited chan struct{}      // closed when the writers have all that was written before the exit, or get nothing more
	done   chan struct{}      // closed when the writers are called no more
	stop   context.CancelFunc // of the writers
	out    error              // set before done is closed

	mu sync.Mutex
	in error // guarded by mu
}

func (c *copies) start(p *Process, cmd Cmd) {
	if cmd.Stdin != nil {
		go c.input(p, cmd.Stdin) // ends with the process or the handle, and the Read that it is in
	}
	if cmd.Stdout == nil && cmd.Stderr == nil {
		return
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(p.life)
	c.exited, c.done = make(chan struct{}), make(chan struct{})
	go func() { // Wait and Close wait for it
		defer close(c.done)
		exited := sync.OnceFunc(func() { close(c.exited) })
		defer exited()
		c.out = c.output(p.Events(ctx, process.ReadOptions{Drain: -1}), cmd, exited)
	}()
}

// output returns the first error of a writer, the first gap without an
// OnGap, or why there is no more output before its end.
func (c *copies) output(events func(func(process.Event, error) bool), cmd Cmd, exited func()) error {
	to := map[process.Stream]io.Writer{process.Stdout: cmd.Stdout, process.PTY: cmd.Stdout, process.Stderr: cmd.Stderr}
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	for ev, err := range events {
		w := to[ev.Stream]
		switch {
		case errors.Is(err, context.Canceled): // by finish or Close
		case err != nil:
			note(err)
		case ev.Kind == process.EventExited:
			exited()
		case ev.Kind == process.EventGap:
			switch {
			case cmd.OnGap != nil:
				cmd.OnGap(ev.Gap)
			case to[ev.Gap.Stream] != nil:
				note(&process.GapError{Gap: ev.Gap})
			}
		case ev.Kind == process.EventOutput && w != nil:
			if _, err := w.Write(ev.Data); err != nil {
				note(err)
				to[ev.Stream] = nil
			}
		}
	}
	return first
}

// maxCopy bounds what is read of Cmd.Stdin at once, in bytes.
const maxCopy = 256 << 10

func (c *copies) input(p *Process, from io.Reader) {
	source := &source{Reader: from}
	_, err := io.CopyBuffer(struct{ io.Writer }{p.stdin}, source, make([]byte, maxCopy))
	if source.err == nil && (errors.Is(err, process.ErrStdinClosed) || errors.Is(err, process.ErrExited) || p.life.Err() != nil) {
		err = nil // a program need not read all of its input
	}
	// Noted before the process reads the end of its input, and may end for that.
	c.mu.Lock()
	c.in = err
	c.mu.Unlock()
	_ = p.stdin.Close() // of a process that has ended, most often
}

// source remembers what went wrong with reading. It has no other methods, so that
// what is read is bounded.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// finish waits until the writers have what was written before the exit, and at
// most for the time of drain for what comes behind it; negative: for all of it. No
// writer is called afterwards.
func (c *copies) finish(ctx context.Context, drain time.Duration) error {
	if c.done != nil {
		select {
		case <-c.exited:
		case <-ctx.Done():
			return ctx.Err()
		}
		if drain != 0 {
			var over <-chan time.Time // for ever
			if drain > 0 {
				over = time.After(drain)
			}
			select {
			case <-c.done:
			case <-over:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.stop()
		<-c.done
		if c.out != nil {
			return c.out
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in
}

// wait waits for the writers after their handle was closed.
func (c *copies) wait() {
	if c.done != nil {
		c.stop()
		<-c.done
	}
}
