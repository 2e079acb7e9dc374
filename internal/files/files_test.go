//go:build unix

package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolve(t *testing.T) {
	f := FS{User: User{Home: "/home/u"}, Workdir: "work"}
	tests := []struct{ name, path, want string }{
		{"an absolute path stays", "/a/b", "/a/b"},
		{"dots are cleaned away", "/a/./b/../c//d/", "/a/c/d"},
		{"no path leads above the root", "/../../etc", "/etc"},
		{"a relative path starts at the home", "a/b", "/home/u/a/b"},
		{"a relative path may leave the home", "../x", "/home/x"},
		{"~ is the home", "~", "/home/u"},
		{"~/ is the home", "~/a", "/home/u/a"},
		{"the empty path is the default directory", "", "/home/u/work"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.Resolve(tt.path)
			if err != nil || got != tt.want {
				t.Errorf("Resolve(%q) = %q, %v; want %q", tt.path, got, err, tt.want)
			}
		})
	}
	for name, path := range map[string]string{
		"another user's home": "~root/x",
		"a NUL byte":          "/a\x00b",
		"ten megabytes":       strings.Repeat("a", 10<<20),
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			var invalid *InvalidError
			if _, err := f.Resolve(path); !errors.As(err, &invalid) || invalid.Field != "path" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"", "~", "~/a", "~x", "/../..", "a//b", "\x00", "./../\xff"} {
		f.Add(s, "/home/u")
	}
	f.Fuzz(func(t *testing.T, path, home string) {
		if strings.IndexByte(home, 0) >= 0 {
			return
		}
		got, err := FS{User: User{Home: home}}.Resolve(path)
		if err != nil {
			return
		}
		if !filepath.IsAbs(got) || filepath.Clean(got) != got || strings.IndexByte(got, 0) >= 0 || len(got) > MaxPath {
			t.Errorf("Resolve(%q) = %q", path, got)
		}
	})
}

func TestLookupOfAnUnknownUser(t *testing.T) {
	for _, name := range []string{"no-such-user", "a\x00b", strings.Repeat("x", 1<<20)} {
		if _, err := Lookup(name); !errors.Is(err, ErrUnknownUser) {
			t.Errorf("Lookup(%.20q) = %v", name, err)
		}
	}
}

// tree makes a small tree and returns its FS:
//
//	dir/sub/deep/leaf  dir/file  link -> dir  dangling -> nowhere  loop -> loop  fifo
func tree(t *testing.T) FS {
	t.Helper()
	f := self(t)
	home := f.User.Home
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(home, "dir/sub/deep"), 0o755))
	must(os.WriteFile(filepath.Join(home, "dir/file"), []byte("hello"), 0o640))
	must(os.WriteFile(filepath.Join(home, "dir/sub/deep/leaf"), nil, 0o644))
	must(os.Symlink("dir", filepath.Join(home, "link")))
	must(os.Symlink("nowhere", filepath.Join(home, "dangling")))
	must(os.Symlink("loop", filepath.Join(home, "loop")))
	must(syscall.Mkfifo(filepath.Join(home, "fifo"), 0o600))
	return f
}

func TestStat(t *testing.T) {
	f := tree(t)
	tests := []struct {
		path, permissions, target string
		kind                      Type
		mode                      os.FileMode
	}{
		{"dir", "drwxr-xr-x", "", TypeDir, 0o755},
		{"dir/file", "-rw-r-----", "", TypeFile, 0o640},
		{"link", "Lrwxrwxrwx", "dir", TypeDir, 0o755},
		{"dangling", "Lrwxrwxrwx", "dangling", TypeOther, 0},
		{"loop", "Lrwxrwxrwx", "loop", TypeOther, 0},
		{"fifo", "prw-------", "", TypeOther, 0o600},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			e, err := f.Stat(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			if tt.target != "" {
				tt.target = filepath.Join(f.User.Home, tt.target)
			}
			got := []any{e.Type, e.Mode, e.Permissions, e.Target, e.Path, e.Owner}
			want := []any{tt.kind, tt.mode, tt.permissions, tt.target, filepath.Join(f.User.Home, tt.path), f.User.Name}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := f.Stat("missing"); !errors.Is(err, ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := f.Stat(strings.Repeat("n", 300)); !errors.As(err, new(*InvalidError)) {
		t.Errorf("a name of 300 bytes: %v", err)
	}
}

func TestList(t *testing.T) {
	f := tree(t)
	names := func(path string, depth uint32) []string {
		t.Helper()
		entries, err := f.List(t.Context(), path, depth)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			rel, err := filepath.Rel(f.User.Home, e.Path)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, rel)
		}
		return got
	}
	tests := []struct {
		name, path string
		depth      uint32
		want       []string
	}{
		{"depth 0 is depth 1", "dir", 0, []string{"dir/file", "dir/sub"}},
		{"depth 2 goes into directories", "dir", 2, []string{"dir/file", "dir/sub", "dir/sub/deep"}},
		{"a huge depth lists all", "dir", 1<<32 - 1, []string{"dir/file", "dir/sub", "dir/sub/deep", "dir/sub/deep/leaf"}},
		{"a link is followed and keeps its name in paths", "link", 1, []string{"link/file", "link/sub"}},
		{"links inside are not followed", "~", 2, []string{"dangling", "dir", "dir/file", "dir/sub", "fifo", "link", "loop"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, names(tt.path, tt.depth)); d != "" {
				t.Error(d)
			}
		})
	}
	for path, want := range map[string]error{"loop": ErrLoop, "missing": ErrNotExist, "dangling": ErrNotExist, "dir/file": ErrNotDir, "fifo": ErrNotDir} {
		if _, err := f.List(t.Context(), path, 1); !errors.Is(err, want) {
			t.Errorf("list %s: %v, want %v", path, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.List(ctx, "dir", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestMkdirMoveRemove(t *testing.T) {
	f := tree(t)
	if e, err := f.Mkdir("new/a/b"); err != nil || e.Type != TypeDir || e.Name != "b" {
		t.Errorf("mkdir: %+v, %v", e, err)
	}
	for path, want := range map[string]error{"dir": ErrExists, "link": ErrExists, "dir/file": ErrNotDir, "dir/file/x": ErrNotDir, "loop/x": ErrLoop} {
		if _, err := f.Mkdir(path); !errors.Is(err, want) {
			t.Errorf("mkdir %s: %v, want %v", path, err, want)
		}
	}
	if _, err := f.Mkdir("bad\xffname"); !errors.As(err, new(*InvalidError)) {
		t.Errorf("mkdir of invalid UTF-8: %v", err)
	}
	if e, err := f.Move("dir/file", "made/for/it"); err != nil || e.Size != 5 || e.Name != "it" {
		t.Errorf("move: %+v, %v", e, err)
	}
	if _, err := f.Move("missing", "other/dir/x"); !errors.Is(err, ErrNotExist) {
		t.Errorf("move of nothing: %v", err)
	}
	if _, err := f.Stat("other"); !errors.Is(err, ErrNotExist) {
		t.Errorf("a failed move left a directory: %v", err)
	}
	if _, err := f.Move("dir", "dir/sub/inside"); !errors.As(err, new(*InvalidError)) {
		t.Errorf("move into itself: %v", err)
	}
	for _, path := range []string{"dir", "link", "loop", "fifo", "missing", "made/for/it/below"} {
		if err := f.Remove(path); err != nil {
			t.Errorf("remove %s: %v", path, err)
		}
	}
	if err := f.Remove("/tmp/.."); !errors.As(err, new(*InvalidError)) {
		t.Errorf("remove of the root: %v", err)
	}
}

func TestADaemonThatIsNotRootActsForNobodyElse(t *testing.T) {
	if os.Geteuid() == 0 {
		return
	}
	if _, err := Lookup("root"); !errors.Is(err, ErrPermission) {
		t.Errorf("a daemon that is not root acts for root: %v", err)
	}
}
