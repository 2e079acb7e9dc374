package local

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestTheSudoOfBaseIsForAllWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir, bare := t.TempDir(), t.TempDir()
	proctest.Must(t, fillBase(dir, "", "", []byte("program"), os.Geteuid() != 0))
	for at := "usr/bin/sudo"; at != "."; at = filepath.Dir(at) {
		if info, err := os.Stat(filepath.Join(dir, at)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s is %v (%v), want 0755: it lies above the machine's", at, info.Mode(), err)
		}
	}
	proctest.Must(t, fillBase(bare, "", "", nil, os.Geteuid() != 0))
	if _, err := os.Lstat(filepath.Join(bare, "usr")); !os.IsNotExist(err) {
		t.Errorf("without sudo there is usr in base, above the machine's (%v)", err)
	}
}
