//go:build linux

package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
)

// Versions of the releases that are built: both have as many letters, and no other text
// in the program is the same.
const (
	former = "v0.1.1-rc.10461"
	latest = "v0.1.1-rc.20461"
)

// release is what make dist has built for this machine.
type release struct{ dir, version string }

func (r release) file(ending string) string {
	return filepath.Join(r.dir, "tend-"+r.version+"-linux-"+runtime.GOARCH+ending)
}

// make dist for this machine.
func build(t *testing.T, version, forms string) release {
	t.Helper()
	r := release{t.TempDir(), version}
	command(t, []string{"VERSION=" + version, "OUT=" + r.dir, "FORMS=" + forms}, "scripts/dist", "linux/"+runtime.GOARCH)
	return r
}

func command(t *testing.T, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = proctest.Value(testbin.Root())(t), append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// pack packs a program again, with what the archive of a release has of it.
func pack(t *testing.T, unpacked, program, version, when, forms string) release {
	t.Helper()
	r := release{t.TempDir(), version}
	tool := filepath.Join(t.TempDir(), "dist")
	command(t, nil, "go", "-C", "tools/dist", "build", "-o", tool, ".")
	command(t, nil, tool, "-out", r.dir, "-version", version, "-when", when, "-platform", "linux/"+runtime.GOARCH, "-tend", program, "-share", unpacked, "-only", forms)
	return r
}

// unpack reads a tar, compressed or not, into a directory.
func unpack(t *testing.T, data []byte, dir string) {
	t.Helper()
	for name, e := range entries(t, data) {
		path := filepath.Join(dir, name)
		proctest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if e.Typeflag == tar.TypeDir {
			proctest.Must(t, os.MkdirAll(path, 0o755))
			continue
		}
		proctest.Must(t, os.WriteFile(path, e.data, e.FileInfo().Mode()))
	}
}

// entry is one of a tar.
type entry struct {
	*tar.Header
	data []byte
}

func entries(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		data = proctest.Value(io.ReadAll(proctest.Value(gzip.NewReader(bytes.NewReader(data)))(t)))(t)
	}
	all := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		proctest.Must(t, err)
		all[filepath.Clean(h.Name)] = entry{h, proctest.Value(io.ReadAll(r))(t)}
	}
}
