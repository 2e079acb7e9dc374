package tend

import (
	"context"
	"sync"

	"github.com/tend-run/tend/process"
)

// Input writes to the stdin or the terminal of a process. It is an io.WriteCloser. Any
// number of clients may write to one process: the bytes of one Write stay together, and
// each byte arrives once, even if connections are lost and servers die. (If the client
// is away for more than ten seconds in the middle of a Write of more than 1 MiB, the
// rest follows after the bytes that others wrote meanwhile.) Write returns once the
// bytes will reach the process even if the server dies. It may block while the process
// does not read.
//
// Nothing is written twice: if the answer to a write was lost, and more than 64 other
// writers have written before it can be repeated, Write returns
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

// WriteContext is Write with a context that ends the call. It is then unknown how many
// of the bytes were accepted.
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

// Close ends stdin, so that the process reads end of file. A terminal stays open; to
// send it end of file, Write the character 0x04.
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
