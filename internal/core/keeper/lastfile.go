//go:build linux

package keeper

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lastFile is a descriptor reserved for the moment when no other is left: a kill frees
// descriptors, but needs one to list processes.
type lastFile struct {
	mu   sync.Mutex
	file *os.File // guarded by mu; nil until the first keep
}

// lastFileTries bounds how often a read waits a millisecond: another goroutine may
// have taken the descriptor that was closed for it.
const lastFileTries = 20

// keep opens the descriptor if there is room.
func (l *lastFile) keep() {
	if l.file == nil {
		l.file, _ = os.Open(os.DevNull) // tried again after the next read
	}
}

// read reads a small file of /proc, though there may be no descriptor left.
func (l *lastFile) read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	for try := 0; noDescriptor(err) && try < lastFileTries; try++ {
		if try > 0 {
			time.Sleep(time.Millisecond)
		}
		b, err = l.readAgain(path)
	}
	return b, err
}

func (l *lastFile) readAgain(path string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.keep()
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
	return os.ReadFile(path)
}

func noDescriptor(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }
