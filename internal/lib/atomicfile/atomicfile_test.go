package atomicfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestReadersSeeTheOldContentOrTheNewOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	contents := [][]byte{bytes.Repeat([]byte("a"), 9000), bytes.Repeat([]byte("b"), 12000)}
	proctest.Must(t, File(path, contents[0], 0o640))
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range 500 {
			if err := File(path, contents[n%2], 0o640); err != nil {
				t.Error(err)
			}
		}
	})
	for range 500 {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1]) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	wg.Wait()
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o640 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v %v", left, err)
	}
}

func TestAFileThatCannotBeReplacedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	proctest.Must(t, os.MkdirAll(filepath.Join(path, "not empty"), 0o755))
	err := File(path, []byte("x"), 0o600)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v; want an error that names the file", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v %v", left, err)
	}
}
