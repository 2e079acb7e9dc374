package tend

import (
	"context"
	"fmt"
	"sync"

	"github.com/tend-run/tend/process"
)

// Input writes to the stdin or the terminal of a process. It is an
// io.WriteCloser. Each byte carries its offset, so that bytes whose
// acknowledgement was lost are sent again and yet taken once. Write returns
// when the bytes will reach the process even if the server dies; while the
// process does not read, it may block.
//
// The offsets assume that nobody else writes to the same process meanwhile.
// If somebody does, Write returns an error.
type Input struct {
	proc process.Process
	pty  bool

	mu     sync.Mutex // held by the one who writes
	known  bool       // offset was asked for
	offset int64      // of the next byte
	closed bool
}

// Write implements io.Writer.
func (w *Input) Write(p []byte) (int, error) { return w.WriteContext(context.Background(), p) }

// WriteContext is Write with a context that ends the call. Whether the bytes
// were taken is then not known, and the next write finds out.
func (w *Input) WriteContext(ctx context.Context, p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, process.ErrStdinClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	return w.send(ctx, p, false)
}

func (w *Input) send(ctx context.Context, p []byte, eof bool) (int, error) {
	if !w.known {
		info, err := w.proc.Info(ctx)
		if err != nil {
			return 0, err
		}
		w.offset, w.known = info.Stdin.Accepted, true
	}
	sent := 0
	for {
		at, rest := w.offset, p[sent:]
		taken, err := w.proc.Write(ctx, process.Input{Data: rest, Offset: &at, EOF: eof})
		if err != nil {
			w.known = false
			return sent, err
		}
		n := taken.Offset - at
		if n < 0 || n > int64(len(rest)) {
			w.known = false
			return sent, fmt.Errorf("stdin of %s: somebody else wrote %d bytes meanwhile; one writer at a time", w.proc.ID(), n-int64(len(rest)))
		}
		w.offset, sent = taken.Offset, sent+int(n)
		if sent == len(p) {
			return sent, nil
		}
	}
}

// Close ends stdin, so that the process reads end of file. A terminal has no
// end of its own: it is left open, and a program that is to see end of file
// gets the character 0x04 by Write.
func (w *Input) Close() error { return w.CloseContext(context.Background()) }

// CloseContext is Close with a context that ends the call.
func (w *Input) CloseContext(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	if !w.pty {
		if _, err := w.send(ctx, nil, true); err != nil {
			return err
		}
	}
	w.closed = true
	return nil
}
