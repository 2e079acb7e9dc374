package spool

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tend-run/tend/process"
)

// maxJournal bounds a journal in bytes: a spec, and facts without end. A larger
// one is damaged, and is not read.
const maxJournal = 2 * maxRecord

// broken is process.ErrDamaged with what is wrong.
func broken(path, what string) error {
	return fmt.Errorf("%w: its %s %s", process.ErrDamaged, filepath.Base(path), what)
}

// kindOf says what lies where a file should.
func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "is a directory"
	case m&fs.ModeSymlink != 0:
		return "is a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "is a FIFO"
	case m&fs.ModeSocket != 0:
		return "is a socket"
	case m&fs.ModeDevice != 0:
		return "is a device"
	}
	return "is no regular file"
}
