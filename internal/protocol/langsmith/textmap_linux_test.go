package langsmith

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// Maps stay as long as any sandbox has their process. A process of no sandbox has
// none.
func TestMapsAreSweptWithTheirSandboxes(t *testing.T) {
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: t.TempDir(), Manager: m}))(t)
	f := proctest.Value(New(Config{Driver: d, Dir: t.TempDir()}))(t)
	defer f.Close()
	in := func(m process.Manager) string {
		p := proctest.Start(t, m, process.Spec{Shell: "sleep 1000"})
		return string(p.ID())
	}
	boxes := map[string]driver.Sandbox{} // by the process inside
	for range 2 {
		box := proctest.Value(d.Create(t.Context(), driver.Spec{}))(t)
		boxes[in(box.Processes())] = box
	}
	for _, id := range append(slices.Collect(maps.Keys(boxes)), in(m), "gone") {
		proctest.Must(t, os.WriteFile(filepath.Join(f.dir, id+".stdout.map"), nil, 0o600))
	}
	for id, box := range boxes {
		f.sweepMaps(t.Context())
		left, err := filepath.Glob(filepath.Join(f.dir, "*.map"))
		if err != nil || len(left) != len(boxes) || !slices.Contains(left, filepath.Join(f.dir, id+".stdout.map")) {
			t.Errorf("there are %q, %v; want the maps of %d sandboxes", left, err, len(boxes))
		}
		proctest.Must(t, box.Destroy(t.Context()))
		delete(boxes, id)
	}
}

// Whatever lies in place of a kept map, nobody waits for it, no more is read than
// a map has, and nothing is written elsewhere: the stream is read again.
func TestWhatIsNoKeptMapIsLeftAlone(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	const text = "the text of another"
	proctest.Must(t, os.WriteFile(victim, []byte(text), 0o600))
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
			proctest.Must(t, put(m.path))
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
