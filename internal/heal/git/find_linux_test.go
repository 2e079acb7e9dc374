package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestACommandFindsItsRepository: the nearest one, where it really is, and nothing that only
// pretends to be one.
func TestACommandFindsItsRepository(t *testing.T) {
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	dirs := func(names ...string) {
		for _, name := range names {
			proctest.Must(t, os.MkdirAll(filepath.Join(base, name), 0o755))
		}
	}
	file := func(name, text string) {
		proctest.Must(t, os.WriteFile(filepath.Join(base, name), []byte(text), 0o644))
	}
	dirs(".git/objects", "mono/.git/objects", "mono/apps/web", "mono/.git/worktrees/x", "tree", "bad", "keys", "plain")
	for _, dir := range []string{".git", "mono/.git", "mono/.git/worktrees/x"} {
		file(dir+"/HEAD", "ref: refs/heads/main\n")
	}
	file("tree/.git", "gitdir: "+base+"/mono/.git/worktrees/x\n")
	file("mono/.git/worktrees/x/commondir", "../..\n")
	file("bad/.git", "gitdir: "+base+"/keys\n")
	for root, want := range map[string]string{
		"mono": "/mono/.git", "mono/apps/web": "/mono/.git", "tree": "/tree/.git /mono/.git/worktrees/x /mono/.git", "bad": "", "plain": "/.git",
	} {
		var got []string
		for _, dir := range Dirs(filepath.Join(base, root)) {
			got = append(got, strings.TrimPrefix(dir, base))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("of %s: %q", root, got)
		}
	}
}
