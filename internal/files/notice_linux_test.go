package files

import (
	"os"
	"path/filepath"
	"strings"
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

// Two directories that change places are both followed, and are both there in what is told.
func TestDirectoriesThatChangePlacesAreFollowed(t *testing.T) {
	for _, with := range []string{"top/b", "top/c/b", "outside/b"} {
		t.Run("with "+with, func(t *testing.T) {
			f := self(t)
			at := func(name string) string { return filepath.Join(f.User.Home, name) }
			proctest.Must(t, os.MkdirAll(at("top/a/of-a"), 0o755))
			proctest.Must(t, os.MkdirAll(at(with+"/of-b"), 0o755))
			w := watch(t, f, "top", WatchOptions{Recursive: true})
			there := map[string]bool{"a": true, "a/of-a": true}
			follow := func(events []Event) {
				for _, ev := range events {
					switch ev.Op {
					case OpCreate:
						there[ev.Name] = true
					case OpRemove, OpRename:
						for name := range there {
							if name == ev.Name || strings.HasPrefix(name, ev.Name+"/") {
								delete(there, name)
							}
						}
					}
				}
			}
			proctest.Must(t, unix.Renameat2(unix.AT_FDCWD, at("top/a"), unix.AT_FDCWD, at(with), unix.RENAME_EXCHANGE))
			proctest.Must(t, os.WriteFile(at("top/end"), nil, 0o600))
			follow(until(t, w, "end", OpCreate))
			if !there["a"] || !there["a/of-b"] || there["a/of-a"] {
				t.Errorf("what is told of a: %v", there)
			}
			proctest.Must(t, os.WriteFile(at("top/a/of-b/f"), nil, 0o600))
			until(t, w, "a/of-b/f", OpCreate)
			inside, within := strings.CutPrefix(with, "top/")
			if !within {
				return
			}
			if !there[inside] || !there[inside+"/of-a"] || there[inside+"/of-b"] {
				t.Errorf("what is told of %s: %v", inside, there)
			}
			proctest.Must(t, os.WriteFile(at(with+"/of-a/f"), nil, 0o600))
			until(t, w, inside+"/of-a/f", OpCreate)
		})
	}
}
