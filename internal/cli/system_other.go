//go:build !unix

package cli

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// resizeSignals is empty: no signal reports the terminal's size here.
func resizeSignals() []os.Signal { return nil }

func apart() *syscall.SysProcAttr { return nil }

func privately(do func()) { do() }

func ours(string) bool { return false }

func waits(*os.File) bool { return false }

// canWriteTo finds nothing: the first write shows it.
func canWriteTo(string) error { return nil }

// cancelReader reads a file and can be left while it waits. The read itself
// lasts until a key is typed, or to the end of this program.
type cancelReader struct {
	io.Reader
	stop *io.PipeWriter
}

// newCancelReader returns a reader that returns io.EOF at the end of the input and
// os.ErrClosed after cancel.
func newCancelReader(f *os.File) (*cancelReader, error) {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, f)
		w.CloseWithError(err)
	}()
	return &cancelReader{r, w}, nil
}

func (r *cancelReader) cancel() { r.stop.CloseWithError(os.ErrClosed) }

func (r *cancelReader) release() {}

func inForeground(int) bool { return true }

func singleKeys(int) (restore func(), err error) { return nil, errors.ErrUnsupported }

func endLinesAt(int, byte) (restore func(), err error) { return nil, errors.ErrUnsupported }

// hungUp only waits until stopped reads end of file: who prints notices at the
// next write that its reader is gone.
func hungUp(_, stopped *os.File) bool {
	stopped.Read(make([]byte, 1))
	return false
}

// secretModes: the mode of a file does not say who may read it.
const secretModes = false

// fileIDOf and hasLinks know nothing: each name is a file of its own.
func fileIDOf(os.FileInfo) fileID { return fileID{} }

func hasLinks(os.FileInfo) bool { return false }

func ownedByUs(os.FileInfo) bool { return true }
