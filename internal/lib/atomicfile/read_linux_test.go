package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Whatever lies at the path, Read comes back, and reads no more than its limit.
func TestReadWaitsForNobodyAndHasALimit(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"fifo": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"hole": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
		"endless": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			proctest.Must(t, put(path))
			if b, err := Read(path, 100); !errors.Is(err, ErrNoFile) {
				t.Errorf("%d bytes, %v; want ErrNoFile", len(b), err)
			}
		})
	}
}
