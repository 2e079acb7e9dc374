package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestPlaybooksOfAnotherAreLeftOut: root repairs the project of another user with the books that
// are built in, and says why those of the project are not used.
func TestPlaybooksOfAnotherAreLeftOut(t *testing.T) {
	proctest.Root(t)
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	dir := filepath.Join(root, filepath.FromSlash(booksDir))
	proctest.Must(t, os.MkdirAll(dir, 0o755))
	file := filepath.Join(dir, "fix.yaml")
	proctest.Must(t, os.WriteFile(file, []byte("why: x\nwhen: {signal: [exit]}\ndo:\n  - run: [touch, ran]\n"), 0o644))
	for _, c := range []struct {
		owner int
		used  bool
	}{{0, true}, {65534, false}} {
		proctest.Must(t, os.Chown(file, c.owner, c.owner))
		l, opened, err := Open(Config{ID: "e1", Root: root, Cwd: root, Dir: t.TempDir()})
		proctest.Must(t, err)
		plans := proctest.Value(l.Match(t.Context(), playbook.Evidence{Dir: root, Service: "web", Signal: playbook.Exit}))(t)
		if used := len(plans) > 0 && plans[0].Book == "fix"; used != c.used {
			t.Errorf("of uid %d: used %v", c.owner, used)
		}
		if notes := strings.Join(opened.Notes, "\n"); c.used != (notes == "") || !c.used && !strings.Contains(notes, "fix.yaml belongs to uid 65534") {
			t.Errorf("of uid %d it says %q", c.owner, notes)
		}
		proctest.Must(t, l.Close())
	}
}
