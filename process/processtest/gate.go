//go:build unix

package processtest

import (
	"os"
	"path/filepath"
	"syscall"
)

// gate holds a process back: "cat path" in it returns when the gate is opened.
type gate struct{ path string }

// gate makes a closed gate.
func (t *T) gate() gate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	t.check(syscall.Mkfifo(path, 0o666))
	return gate{path}
}

// open lets through whoever waits or comes.
func (g gate) open(t *T) {
	t.Helper()
	var f *os.File
	t.eventually("somebody at the gate", func() bool {
		// Without a reader this fails with ENXIO instead of waiting.
		fd, err := syscall.Open(g.path, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if err == nil {
			f = os.NewFile(uintptr(fd), g.path)
		}
		return err == nil
	})
	f.Close()
}
