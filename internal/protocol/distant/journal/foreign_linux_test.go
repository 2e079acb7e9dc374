package journal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/support/proctest"
)

// foreign are things that may lie in place of a segment.
func foreign(victim string) map[string]func(path string) error {
	return map[string]func(path string) error{
		"fifo": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"link": func(path string) error { return os.Symlink(victim, path) },
	}
}

// Whatever lies in place of a segment, the journal waits for nobody, reads no more
// than a segment has, and writes nowhere else.
func TestWhatIsNoSegmentIsRefused(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	proctest.Must(t, os.WriteFile(victim, []byte("kept"), 0o600))
	for name, put := range foreign(victim) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			proctest.Must(t, put(segmentPath(dir, 1)))
			if _, err := Open(dir); !errors.Is(err, atomicfile.ErrNoFile) {
				t.Errorf("open: %v", err)
			}
			l := create(t, 1)
			proctest.Must(t, put(segmentPath(l.Dir(), 2)))
			appendAll(t, l, Record{Kind: KindHeartbeat, Frame: 7})
			if err := l.Append(Record{Kind: KindHeartbeat, Frame: 8}); !errors.Is(err, atomicfile.ErrNoFile) {
				t.Errorf("append to the next segment: %v", err)
			}
			if err := l.Frames(7, 8, func(Record) error { return nil }); err == nil {
				t.Error("frames of what is no segment")
			}
		})
	}
	t.Run("hole", func(t *testing.T) {
		l := create(t, segmentSize)
		proctest.Must(t, os.Truncate(segmentPath(l.Dir(), 1), 1<<40))
		if _, err := Open(l.Dir()); !errors.Is(err, atomicfile.ErrNoFile) {
			t.Errorf("open: %v", err)
		}
		if err := l.Frames(6, 7, func(Record) error { return nil }); !errors.Is(err, atomicfile.ErrNoFile) {
			t.Errorf("frames: %v", err)
		}
	})
	if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" {
		t.Errorf("what the link leads to holds %q, %v", b, err)
	}
}
