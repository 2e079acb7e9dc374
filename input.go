package tend

import (
	"context"
	"sync"

	"github.com/tend-run/tend/process"
)

// Input writes to the stdin or the terminal of a process. It is an
// io.WriteCloser. Any number of clients may write to one process: the bytes of
// one Write stay together, and each arrives once, also if connections are lost
// and servers die. (A Write of more than 1 MiB whose client is away for more
// than ten seconds in the middle of it is continued behind what others wrote
// meanwhile.) Write returns when the bytes will reach the process even if the
// server dies; while the process does not read, it may block.
//
// Nothing is written twice: if the answer to a write was lost, and more than 64
// others have written before it can be repeated, Write returns
// [process.ErrWriterForgotten].
type Input struct {
	proc process.Process
	life context.Context // of the handle; it ends calls without a context of their own
	pty  bool

	mu     sync.Mutex // held by the caller that writes
	closed bool
}

// Write implements io.Writer. It ends with the handle.
func (w *Input) Write(p []byte) (int, error) { return w.WriteContext(w.life, p) }

// WriteContext is Write with a context that ends the call. How many of the
// bytes were accepted is then not known.
func (w *Input) WriteContext(ctx context.Context, p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, process.ErrStdinClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	if _, err := w.proc.Write(ctx, process.Input{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends stdin, so that the process reads end of file. A terminal has no
// end of its own: it is left open, and a program that is to see end of file
// gets the character 0x04 by Write.
func (w *Input) Close() error { return w.CloseContext(w.life) }

// CloseContext is Close with a context that ends the call.
func (w *Input) CloseContext(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	if !w.pty {
		if _, err := w.proc.Write(ctx, process.Input{EOF: true}); err != nil {
			return err
		}
	}
	w.closed = true
	return nil
}
