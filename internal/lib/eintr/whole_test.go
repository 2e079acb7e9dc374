//go:build unix

package eintr_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestAWholeBufferIsWrittenAndRead(t *testing.T) {
	f := proctest.Value(os.Create(filepath.Join(t.TempDir(), "f")))(t)
	defer f.Close()
	fd := int(f.Fd())
	if n, err := eintr.Write(fd, []byte("head")); n != 4 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, err := eintr.Pwrite(fd, []byte("tail"), 6); n != 4 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	b := make([]byte, 20)
	if n, err := eintr.Pread(fd, b, 2); err != nil || string(b[:n]) != "ad\x00\x00tail" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	if n, err := eintr.Pwrite(-1, b, 0); n != 0 || err == nil {
		t.Errorf("wrote %d to no file, %v", n, err)
	}
}
