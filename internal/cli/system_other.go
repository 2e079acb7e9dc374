//go:build !unix

package cli

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// resizeSignals is empty: no signal reports the terminal's size here.
func resizeSignals() []os.Signal { return nil }

func apart() *syscall.SysProcAttr { return nil }

func privately(do func()) { do() }

// canWriteTo finds nothing: the first write shows it.
func canWriteTo(string) error { return nil }

// cancelReader reads a file and can be left while it waits. The read itself
// lasts until a key is typed, or to the end of this program.
type cancelReader struct {
	file  *os.File
	begin sync.Once
	got   chan piece
	used  chan struct{} // the piece was copied
	stop  chan struct{}
}

type piece struct {
	data []byte
	err  error
}

func newCancelReader(f *os.File) (*cancelReader, error) {
	return &cancelReader{file: f, got: make(chan piece), used: make(chan struct{}), stop: make(chan struct{})}, nil
}

// Read waits for input and reads it. It returns io.EOF at the end of the
// input and os.ErrClosed after cancel.
func (r *cancelReader) Read(b []byte) (int, error) {
	r.begin.Do(func() { go r.run(len(b)) })
	select {
	case p := <-r.got:
		n := copy(b, p.data)
		select {
		case r.used <- struct{}{}:
		case <-r.stop:
		}
		return n, p.err
	case <-r.stop:
		return 0, os.ErrClosed
	}
}

func (r *cancelReader) run(size int) {
	buf := make([]byte, size)
	for {
		n, err := r.file.Read(buf)
		select {
		case r.got <- piece{buf[:n], err}:
		case <-r.stop:
			return
		}
		select {
		case <-r.used:
		case <-r.stop:
			return
		}
	}
}

func (r *cancelReader) cancel() { close(r.stop) }

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
