package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestWithinKeepsEachOperationInside has links that lead out in each place of a path.
func TestWithinKeepsEachOperationInside(t *testing.T) {
	f := self(t)
	top := proctest.Value(filepath.EvalSymlinks(f.User.Home))(t)
	root, other := top+"/root", top+"/root-other"
	proctest.Must(t, errors.Join(os.MkdirAll(root+"/dir", 0o755), os.Mkdir(other, 0o755),
		os.WriteFile(other+"/secret", []byte("secret"), 0o600), os.WriteFile(root+"/dir/mine", []byte("mine"), 0o600),
		os.Symlink(other, root+"/out"), os.Symlink("../root-other/secret", root+"/file"), os.Symlink(root+"/dir", root+"/in"),
		os.Symlink(other+"/new", root+"/dead")))
	f.Within = root
	for name, do := range map[string]func(path string) error{
		"open":  func(p string) error { _, _, err := f.Open(p); return err },
		"stat":  func(p string) error { return f.do(func(a *Actor) error { _, err := a.Stat(p); return err }) },
		"list":  func(p string) error { _, err := f.List(t.Context(), p, 1); return err },
		"write": func(p string) error { _, err := f.Write(p, strings.NewReader("x"), nil); return err },
		"replace": func(p string) error {
			_, _, err := f.Replace(t.Context(), p, strings.NewReader("x"), AnyVersion)
			return err
		},
		"install": func(p string) error {
			_, _, err := f.Install(t.Context(), p, strings.NewReader("x"), AnyVersion, 0o600)
			return err
		},
		"put":      func(p string) error { return f.do(func(a *Actor) error { return a.Put(p, nil, 0o600) }) },
		"mkdir":    func(p string) error { _, err := f.Mkdir(p + "/made"); return err },
		"chmod":    func(p string) error { return f.Chmod(p, func(m os.FileMode) os.FileMode { return 0o777 }) },
		"copy to":  func(p string) error { return f.Copy(t.Context(), root+"/dir", p+"/copied") },
		"move to":  func(p string) error { _, err := f.Move(root+"/dir/mine", p+"/moved"); return err },
		"real":     func(p string) error { return f.do(func(a *Actor) error { _, err := a.Real(p); return err }) },
		"append":   func(p string) error { return f.Append(p, []byte("x")) },
		"in place": func(p string) error { return f.RemoveOne(p + "/secret") },
	} {
		for _, path := range []string{other, other + "/secret", other + "/none", root + "/out", root + "/out/secret", root + "/out/none/none",
			root + "/file", root + "/in/../out/secret", top, "/", "/etc/none"} {
			if err := do(path); !errors.Is(err, ErrOutside) {
				t.Errorf("%s %s: %v", name, path, err)
			}
		}
	}
	if got := namesIn(t, other); got != "secret" {
		t.Errorf("outside there is %s now", got)
	}
	if got := string(proctest.Value(os.ReadFile(other + "/secret"))(t)); got != "secret" {
		t.Errorf("it holds %q", got)
	}
	if _, err := f.Write(root+"/dead", strings.NewReader("x"), nil); !errors.Is(err, ErrOutside) {
		t.Errorf("a link to what is not there yet: %v", err)
	}
	proctest.Value(f.Stat(root + "/in/mine"))(t)
	if _, err := f.Stat(root + "/in/none"); !errors.Is(err, ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	proctest.Must(t, f.Remove(root+"/out")) // the link
	proctest.Value(os.Stat(other + "/secret"))(t)
	proctest.Must(t, os.RemoveAll(root))
	if _, err := f.Stat(root + "/dir"); !errors.Is(err, ErrNotExist) {
		t.Errorf("when the directory itself is gone: %v", err)
	}
}

func TestInstallSetsTheModeAndNeedsTheDirectoryAlone(t *testing.T) {
	f := self(t)
	path := f.User.Home + "/new/file"
	for _, mode := range []os.FileMode{0o440, 0, 0o751} {
		_, version, err := f.Install(t.Context(), path, strings.NewReader("x"), AnyVersion, mode)
		info := proctest.Value(os.Stat(path))(t)
		if err != nil || info.Mode() != mode || Version(info) != version {
			t.Errorf("%v: %v, %s, %v", mode, info.Mode(), version, err)
		}
	}
	if _, _, err := f.Install(t.Context(), path, strings.NewReader("x"), "", 0o600); !errors.Is(err, ErrExists) {
		t.Errorf("over a file that must not be there: %v", err)
	}
	if got := namesIn(t, filepath.Dir(path)); got != "file" {
		t.Errorf("the directory has %s", got)
	}
}
