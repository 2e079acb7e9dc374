package ocitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

var library = regexp.MustCompile(`(/\S+) \(0x`)

// Programs are programs of this machine in /bin of an image, with the libraries that they load:
// enough of a root for a shell.
func Programs(t testing.TB, names ...string) (all []File) {
	t.Helper()
	seen := map[string]bool{}
	add := func(from, to string) {
		if !seen[to] {
			seen[to] = true
			all = append(all, File{Name: to, Text: string(proctest.Value(os.ReadFile(from))(t)), Mode: 0o755})
		}
	}
	for _, name := range names {
		path := proctest.Value(exec.LookPath(name))(t)
		add(path, "/bin/"+name)
		out := proctest.Value(exec.Command("ldd", path).Output())(t)
		for _, m := range library.FindAllSubmatch(out, -1) {
			add(string(m[1]), filepath.Clean(string(m[1])))
		}
	}
	return all
}
