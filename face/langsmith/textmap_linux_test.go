package langsmith

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Whatever lies in place of a kept map, nobody waits for it, no more is read than
// a map has, and nothing is written elsewhere: the stream is read again.
func TestWhatIsNoKeptMapIsLeftAlone(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	const text = "the text of another"
	if err := os.WriteFile(victim, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(path string) error{
		"fifo": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"link": func(path string) error { return os.Symlink(victim, path) },
		"hole": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &textMap{path: filepath.Join(t.TempDir(), "x.stdout.map")}
			if err := put(m.path); err != nil {
				t.Fatal(err)
			}
			m.add(0, make([]byte, 100), 0)
			m.mu.Lock()
			m.save()
			m.mu.Unlock()
			if end := m.m.End().Raw; end != 100 {
				t.Errorf("the map ends at %d, want 100", end)
			}
		})
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != text {
		t.Errorf("what the link leads to holds %q, %v", b, err)
	}
}
