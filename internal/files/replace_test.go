//go:build unix

package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// names are what is in a directory.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	all := []string{}
	for _, e := range proctest.Value(os.ReadDir(dir))(t) {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestReplace(t *testing.T) {
	for name, nameless := range map[string]bool{"without a name": true, "beside it": false} {
		t.Run(name, func(t *testing.T) {
			f := self(t)
			dir := f.User.Home
			path := filepath.Join(dir, "file")
			put := func(content, was string) (string, error) {
				_, v, err := f.replace(t.Context(), path, strings.NewReader(content), &replacement{was: was, named: !nameless})
				return v, err
			}
			holds := func(want string) {
				t.Helper()
				if got := string(proctest.Value(os.ReadFile(path))(t)); got != want || namesIn(t, dir) != "file" {
					t.Errorf("the file has %d bytes, want %d; the directory has %s", len(got), len(want), namesIn(t, dir))
				}
			}
			if _, err := put("x", "1-2"); !errors.Is(err, ErrChanged) {
				t.Errorf("a version of no file: %v", err)
			}
			if _, err := put("x", SomeVersion); !errors.Is(err, ErrChanged) {
				t.Errorf("any version of no file: %v", err)
			}
			proctest.Value(put("some", ""))(t)
			proctest.Value(put("some more", SomeVersion))(t)
			holds("some more")
			proctest.Must(t, os.Remove(path))
			one := proctest.Value(put("one", ""))(t)
			holds("one")
			if _, err := put("two", ""); !errors.Is(err, ErrExists) {
				t.Errorf("a file that must not be there: %v", err)
			}
			proctest.Must(t, os.Chmod(path, 0o751))
			if _, err := put("two", one); !errors.Is(err, ErrChanged) {
				t.Errorf("its mode has changed: %v", err)
			}
			info := proctest.Value(os.Stat(path))(t)
			big := strings.Repeat("0123456789", 50_000)
			two := proctest.Value(put(big, Version(info)))(t)
			holds(big)
			if now := proctest.Value(os.Stat(path))(t); Version(now) != two || now.Mode() != info.Mode() {
				t.Errorf("the mode is %v, the version %s and was told as %s", now.Mode(), Version(now), two)
			}
			// What breaks off, early or late, and what somebody else changes meanwhile.
			for _, n := range []int{10, 300_000} {
				if _, _, err := f.replace(t.Context(), path, broken(n), &replacement{was: AnyVersion, named: !nameless}); !IsBodyError(err) {
					t.Errorf("broken off after %d bytes: %v", n, err)
				}
				holds(big)
			}
			meanwhile := io.MultiReader(strings.NewReader(big), readerFunc(func([]byte) (int, error) {
				proctest.Must(t, os.WriteFile(path, []byte("other"), 0o600))
				return 0, io.EOF
			}))
			if _, _, err := f.replace(t.Context(), path, meanwhile, &replacement{was: two, named: !nameless}); !errors.Is(err, ErrChanged) {
				t.Errorf("changed meanwhile: %v", err)
			}
			holds("other")
			proctest.Value(put("any", AnyVersion))(t)
			holds("any")
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestReplaceFollowsLinksAndRefusesWhatIsNoFile(t *testing.T) {
	f := tree(t)
	proctest.Must(t, os.Symlink("dir/file", filepath.Join(f.User.Home, "to-file")))
	if _, _, err := f.Replace(t.Context(), "to-file", strings.NewReader("new"), AnyVersion); err != nil {
		t.Fatal(err)
	}
	if link, err := os.Readlink(filepath.Join(f.User.Home, "to-file")); err != nil || link != "dir/file" {
		t.Errorf("the link is %q, %v", link, err)
	}
	if got := string(proctest.Value(os.ReadFile(filepath.Join(f.User.Home, "dir/file")))(t)); got != "new" {
		t.Errorf("it leads to %q", got)
	}
	if _, _, err := f.Replace(t.Context(), "dangling", strings.NewReader("new"), AnyVersion); err != nil {
		t.Fatal(err)
	}
	if info := proctest.Value(os.Lstat(filepath.Join(f.User.Home, "dangling")))(t); !info.Mode().IsRegular() {
		t.Errorf("a link to no file is now %v", info.Mode())
	}
	for path, want := range map[string]error{
		"dir": ErrIsDir, "fifo": ErrNotRegular, "/dev/null": ErrNotRegular, "/proc/self/comm": nil, "loop": ErrLoop, "dir/file/below": ErrNotDir,
	} {
		if _, _, err := f.Replace(t.Context(), path, strings.NewReader("x"), AnyVersion); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A link that appears at the path meanwhile leads to another directory: no file there, and
// none of the same name beside the path, is touched.
func TestALinkThatAppearsMeanwhileMisleadsNoReplacement(t *testing.T) {
	f := self(t)
	at := func(name string) string { return filepath.Join(f.User.Home, name) }
	proctest.Must(t, os.Mkdir(at("other"), 0o755))
	for _, name := range []string{"file", "other/file"} {
		proctest.Must(t, os.WriteFile(at(name), []byte("kept"), 0o600))
	}
	body := &meanwhile{do: func() { proctest.Must(t, os.Symlink("other/file", at("path"))) }, r: strings.NewReader("new")}
	if _, _, err := f.Replace(t.Context(), "path", body, AnyVersion); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file": "kept", "other/file": "kept", "path": "new"} {
		if got := string(proctest.Value(os.ReadFile(at(name)))(t)); got != want {
			t.Errorf("%s is %q, and not %q", name, got, want)
		}
	}
}

// meanwhile does something before it is read.
type meanwhile struct {
	once sync.Once
	do   func()
	r    io.Reader
}

func (m *meanwhile) Read(b []byte) (int, error) {
	m.once.Do(m.do)
	return m.r.Read(b)
}
