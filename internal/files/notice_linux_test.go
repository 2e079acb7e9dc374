package files

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A directory that replaces a watched one has its name, and keeps it when the kernel drops the
// watch of the old one: each removal in it is told once, and it is followed when it is renamed.
func TestADirectoryThatReplacesAnotherIsFollowed(t *testing.T) {
	for _, from := range []string{"outside/new", "top/new"} {
		t.Run("from "+from, func(t *testing.T) {
			f := self(t)
			at := func(name string) string { return filepath.Join(f.User.Home, name) }
			proctest.Must(t, os.Mkdir(at("outside"), 0o755))
			proctest.Must(t, os.MkdirAll(at("top/old"), 0o755))
			proctest.Must(t, os.MkdirAll(at(from+"/sub"), 0o755))
			w := watch(t, f, "top", WatchOptions{Recursive: true})
			proctest.Must(t, unix.Rename(at(from), at("top/old"))) // os.Rename replaces no directory
			until(t, w, "old/sub", OpCreate)
			proctest.Must(t, os.Remove(at("top/old/sub")))
			proctest.Must(t, os.WriteFile(at("top/old/f"), nil, 0o600))
			if all := until(t, w, "old/f", OpCreate); count(all, "old/sub", OpRemove) != 1 {
				t.Errorf("its directory was removed once: %v", all)
			}
			proctest.Must(t, os.Rename(at("top/old"), at("top/moved")))
			until(t, w, "moved/f", OpCreate)
			proctest.Must(t, os.WriteFile(at("top/moved/g"), nil, 0o600))
			if all := until(t, w, "moved/g", OpCreate); count(all, "old/g", OpCreate) != 0 {
				t.Errorf("told under the old name: %v", all)
			}
			proctest.Must(t, os.Remove(at("top/moved/g")))
			until(t, w, "moved/g", OpRemove)
		})
	}
}
