package healing

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// What frameworks write arms no service again, also in a directory that they make later; what a
// person writes does, also in a file that git ignores.
func TestWhatGitIgnoresArmsNoService(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/false")
	c, root := project(t, "app")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		proctest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		proctest.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	git := exec.Command("git", "init", "-q", root)
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write(".gitignore", ".mastra/\nlater/\n.env\n")
	write(".mastra/a.js", "1")
	write("node_modules/x/y.js", "1")
	broken := func() {
		t.Helper()
		if got := s.statusOf("app"); got != "broken" {
			t.Fatalf("app is %q", got)
		}
	}
	s.is("app", supervisor.State{Up: true, Phase: supervisor.Failed})
	s.declare(t, c, "/one/tend.yaml")
	until(t, "it is broken", func() bool { return s.statusOf("app") == "broken" })
	for range 4 { // with longer between them than changes are gathered
		write(".mastra/a.js", time.Now().String())
		write("later/b.js", time.Now().String())
		time.Sleep(600 * time.Millisecond)
	}
	broken()
	for at := (time.Time{}); s.statusOf("app") != "running"; time.Sleep(10 * time.Millisecond) {
		if time.Since(at) > time.Second { // so that changes stop for a while
			write(".env", "A="+time.Now().String())
			at = time.Now()
		}
	}
}
