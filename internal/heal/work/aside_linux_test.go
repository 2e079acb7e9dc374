package work

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What a remedy has moved aside comes back to where it was, also if something has put a
// link, or nothing, in place of the directory that it was in; and what the link leads to
// stays as it is.
func TestWhatWasMovedAsideComesBack(t *testing.T) {
	for name, spoil := range map[string]func(dir, outside string) error{
		"a link out of the project": func(dir, outside string) error { return os.Symlink(outside, dir) },
		"a link in the project":     func(dir, _ string) error { return os.Symlink("../keys", dir) },
		"a file":                    func(dir, _ string) error { return os.WriteFile(dir, nil, 0o644) },
		"nothing":                   func(string, string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, 0)
			outside := t.TempDir()
			for _, dir := range []string{outside, filepath.Join(g.root, "keys")} {
				proctest.Must(t, os.MkdirAll(filepath.Join(dir, "node_modules"), 0o755))
				proctest.Must(t, os.WriteFile(filepath.Join(dir, "node_modules", "other"), nil, 0o644))
			}
			g.write("apps/web/node_modules/p/index.js", "installed\n")
			proctest.Must(t, g.w.project.Absorb(t.Context()))
			proctest.Must(t, g.w.project.MoveAside(t.Context(), 1, "apps/web/node_modules"))
			web := filepath.Join(g.root, "apps", "web")
			proctest.Must(t, os.RemoveAll(web))
			proctest.Must(t, spoil(web, outside))
			proctest.Must(t, g.w.project.Mark(t.Context()))
			g.w.state.Tries = []healer.Try{{}}
			if _, err := g.w.rollback(t.Context(), healer.Effect{Do: healer.Rollback, Try: 1}); err != nil {
				t.Error(err)
			}
			for _, file := range []string{filepath.Join(web, ".env.local"), filepath.Join(web, "node_modules", "p", "index.js"), filepath.Join(outside, "node_modules", "other"), filepath.Join(g.root, "keys", "node_modules", "other")} {
				if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
					t.Errorf("%s is not there: %v", file, err)
				}
			}
			if _, err := os.Lstat(filepath.Join(g.root, ".tend", "aside")); err == nil {
				t.Error("something is aside")
			}
		})
	}
}

// Nothing is moved to where a link in place of tend's own directory leads.
func TestNothingIsMovedOutOfTheProject(t *testing.T) {
	g := newGround(t, 0)
	outside := t.TempDir()
	proctest.Must(t, os.MkdirAll(filepath.Join(g.root, ".tend"), 0o755))
	proctest.Must(t, os.Symlink(outside, filepath.Join(g.root, ".tend", "aside")))
	if err := g.w.project.MoveAside(t.Context(), 1, "node_modules"); err == nil {
		t.Error("it was moved")
	}
	if all := proctest.Value(os.ReadDir(outside))(t); len(all) > 0 {
		t.Errorf("outside there is %v", all)
	}
	if _, err := os.Lstat(filepath.Join(g.root, "node_modules", "p", "index.js")); err != nil {
		t.Error(err)
	}
}
