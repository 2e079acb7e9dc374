package tend

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/tend-run/tend/process"
)

// Output reads one stream of a process from the spool, at its own offset. It is an
// io.ReadCloser and io.WriterTo. Read blocks until the process writes; it returns
// io.EOF when nothing more comes. For bytes that retention freed before they were read,
// it returns a [*process.GapError] once, and the next Read continues after them.
type Output struct {
	proc   process.Process
	stream process.Stream
	life   context.Context // of the reader; close ends it
	close  context.CancelFunc

	mu     sync.Mutex // held by the caller that reads
	reader process.Reader
	rest   []byte // of the reader's last event
	offset int64  // of the next byte
	err    error
}

func newOutput(life context.Context, p process.Process, s process.Stream) *Output {
	o := &Output{proc: p, stream: s}
	o.life, o.close = context.WithCancel(life)
	return o
}

// Read implements io.Reader.
func (o *Output) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if len(o.rest) == 0 {
		if err := o.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	o.offset += int64(n)
	return n, nil
}

// WriteTo implements io.WriterTo: it writes the pieces to w as they arrived.
func (o *Output) WriteTo(w io.Writer) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var total int64
	for {
		if len(o.rest) == 0 {
			if err := o.fill(); errors.Is(err, io.EOF) {
				return total, nil
			} else if err != nil {
				return total, err
			}
		}
		n, err := w.Write(o.rest)
		o.rest = o.rest[n:]
		o.offset += int64(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

// fill waits for the next bytes of the stream.
func (o *Output) fill() error {
	switch {
	case o.life.Err() != nil:
		return io.ErrClosedPipe
	case o.err != nil:
		return o.err
	case o.reader == nil:
		opts := process.ReadOptions{Streams: []process.Stream{o.stream}, Unordered: true}
		opts.From[o.stream] = o.offset
		r, err := o.proc.Read(o.life, opts)
		if o.life.Err() != nil { // closed while the stream was being opened
			if err == nil {
				r.Close()
			}
			return io.ErrClosedPipe
		}
		if err != nil {
			return err // the next Read tries again
		}
		o.reader = r
	}
	for {
		ev, ok, err := o.reader.Next()
		switch {
		case err != nil:
			o.err = err
			o.reader.Close()
			return err
		case !ok:
			select {
			case <-o.reader.Ready():
			case <-o.life.Done():
				return io.ErrClosedPipe
			}
		case ev.Kind == process.EventGap:
			o.offset = ev.Gap.To
			return &process.GapError{Gap: ev.Gap}
		case ev.Kind == process.EventOutput && len(ev.Data) > 0:
			o.rest = ev.Data
			return nil
		}
	}
}

// Offset is the position of the next byte in the stream.
func (o *Output) Offset() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.offset
}

// Close ends a waiting Read and all later ones. It is safe to call twice.
func (o *Output) Close() error {
	o.close()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reader != nil {
		return o.reader.Close()
	}
	return nil
}
