package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// asRoot are the files for a user with the rights of root inside.
func (r room) asRoot(name string) FS {
	r.t.Helper()
	f := r.as(name)
	f.AsRoot = true
	return f
}

// owned says whose a path is, by ids of inside, and its mode.
func (r room) owned(path string) string {
	r.t.Helper()
	var st unix.Stat_t
	proctest.Must(r.t, unix.Lstat(r.at(path), &st))
	return fmt.Sprintf("%d:%d %04o", int(st.Uid)-testBase, int(st.Gid)-testBase, st.Mode&0o7777)
}

func TestAsRootWhatAppearsInARootIsTheUsers(t *testing.T) {
	r := newRoom(t)
	f := r.asRoot("user")
	r.put("root/", 0, 0o700, "")
	r.put("root/secret", 0, 0o600, "root's")
	r.put("opt/there/", 0, 0o755, "")
	r.put("opt/group/", 70, 0o755, "")
	proctest.Must(t, os.Chmod(r.at("opt/group"), 0o755|fs.ModeSetgid))
	for path, want := range map[string]string{"app/a/b/f": "1000:1000 0644", "opt/there/f": "1000:1000 0644", "root/secret": "1000:1000 0600", "opt/group/g/f": "1000:1000 0644"} {
		e, err := f.Write("/"+path, strings.NewReader("x"), map[string]string{"k": "v"})
		if got := r.owned(path); err != nil || got != want || !e.Mine || e.Owner != "user" || e.Metadata["k"] != "v" {
			t.Errorf("an upload to %s: %s, %+v, %v; want %s", path, got, e, err, want)
		}
	}
	for path, want := range map[string]string{
		"app": "1000:1000 0755", "app/a": "1000:1000 0755", "app/a/b": "1000:1000 0755", // made
		"opt": "0:0 0755", "opt/there": "0:0 0755", "root": "0:0 0700", // there before
		"opt/group/g": "1000:1000 2755",
	} {
		if got := r.owned(path); got != want {
			t.Errorf("the directory %s is %s; want %s", path, got, want)
		}
	}
	r.put("tmp/", 0, 0o777, "")
	proctest.Must(t, os.Chmod(r.at("tmp"), 0o777|fs.ModeSticky))
	r.link("/home/user", "tmp/link")
	if _, err := f.Write("/tmp/link/f", strings.NewReader("x"), nil); err != nil || r.owned("home/user/f") != "1000:1000 0644" {
		t.Errorf("by the user's link in /tmp: %v", err)
	}
	if e, err := f.Mkdir("/work/a"); err != nil || !e.Mine || r.owned("work") != "1000:1000 0755" || r.owned("work/a") != "1000:1000 0755" {
		t.Errorf("a directory: %s, %s, %+v, %v", r.owned("work"), r.owned("work/a"), e, err)
	}
	r.put("root/moved/", 0, 0o700, "")
	r.put("root/moved/f", 70, 0o600, "70's")
	if e, err := f.Move("/root/moved", "/root/new/moved"); err != nil || e.Mine || e.Owner != "root" || r.owned("root/new") != "1000:1000 0755" || r.owned("root/new/moved") != "0:0 0700" {
		t.Errorf("a move: %s, %s, %+v, %v", r.owned("root/new"), r.owned("root/new/moved"), e, err)
	}
	if text, err := read(f, "/root/new/moved/f"); err != nil || text != "70's" {
		t.Errorf("a read: %q, %v", text, err)
	}
	if all, err := f.List(t.Context(), "/root/new", 3); err != nil || len(all) != 2 || all[1].Owner != "70" {
		t.Errorf("a listing: %+v, %v", all, err)
	}
	r.put("root/part", 0, 0o600, "one ")
	if e, err := f.Compose(t.Context(), []string{"/root/part", "/root/new/moved/f"}, "/srv/whole"); err != nil || !e.Mine || r.owned("srv") != "1000:1000 0755" || r.owned("srv/whole") != "1000:1000 0644" {
		t.Errorf("composed: %s, %+v, %v", r.owned("srv/whole"), e, err)
	}
	if text, err := read(f, "/srv/whole"); err != nil || text != "one 70's" {
		t.Errorf("composed: %q, %v", text, err)
	}
	if _, err := os.Lstat(r.at("root/part")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a source is there: %v", err)
	}
	proctest.Must(t, closed(f.Watch("/root", WatchOptions{Recursive: true})))
	proctest.Must(t, f.Remove("/root/new"))
	if _, err := os.Lstat(r.at("root/new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	if _, err := f.Mkdir("/srv/whole/a/b"); !errors.Is(err, ErrNotDir) || !strings.Contains(err.Error(), "/srv/whole:") {
		t.Errorf("below a file: %v", err)
	}
}

// TestAsRootALinkInARootMakesItsTarget: also where the user could make nothing.
func TestAsRootALinkInARootMakesItsTarget(t *testing.T) {
	r := newRoom(t)
	f := r.asRoot("user")
	r.put("root/real/deep/", 0, 0o700, "")
	r.link("../root/link/../one", "home/first")
	r.link("/root/two", "home/user/second")
	r.link("second", "home/user/third")
	r.link("third", "home/user/fourth")
	r.link("loop", "home/user/loop")
	r.link("/nowhere/f", "home/user/lost")
	r.link("/root/real/..", "home/user/dots")
	proctest.Must(t, os.Symlink("real/deep", r.at("root/link")))
	for link, target := range map[string]string{"/home/first": "root/real/one", "/home/user/fourth": "root/two"} {
		if _, err := f.Write(link, strings.NewReader("x"), nil); err != nil || r.owned(target) != "1000:1000 0644" {
			t.Errorf("%s: %v", link, err)
		}
	}
	for link, want := range map[string]error{"loop": ErrLoop, "lost": ErrNotExist, "dots": ErrIsDir} {
		if _, err := f.Write("/home/user/"+link, strings.NewReader("x"), nil); !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", link, err, want)
		}
	}
}

// TestAsRootNothingMoreThanRootOfARoot: files of this machine that are visible inside.
func TestAsRootNothingMoreThanRootOfARoot(t *testing.T) {
	r := newRoom(t)
	r.put("share/", 0, 0o755, "")
	own := func(path string, uid int) {
		t.Helper()
		proctest.Must(t, os.Chown(r.at(path), uid, uid))
	}
	for path, mode := range map[string]fs.FileMode{"share/shut": 0o700, "share/open": 0o777, "share/shown": 0o755} {
		proctest.Must(t, os.Mkdir(r.at(path), mode))
		proctest.Must(t, os.Chmod(r.at(path), mode))
		own(path, 70_000)
	}
	// Inside ids below a directory that nobody inside may enter.
	r.put("share/shut/dir/", 0, 0o755, "")
	r.put("share/shut/dir/secret", 0, 0o644, "a secret")
	r.put("share/shown/closed/", 1000, 0o700, "")
	r.put("share/shown/closed/mine", 1000, 0o600, "mine")
	r.put("share/open/all", 0, 0o666, "for all")
	own("share/open/all", 70_000)
	r.put("share/open/user", 70, 0o600, "70's")
	r.link("/share/shut/dir/secret", "home/user/in")
	want := snap(t, r.at("share/shut"))
	for _, f := range []FS{r.asRoot("user"), r.as("root")} {
		for _, path := range []string{"/share/shut", "/share/shut/dir", "/share/shut/dir/secret", "/share/shut/dir/new", "/share/shut/dir/new/f", "/home/user/in"} {
			for name, do := range everything(f) {
				err := do(path)
				switch {
				case path == "/home/user/in" || path == "/share/shut" && err == nil && strings.Contains("stat stat below real born", name):
				case name != "born" && !errors.Is(err, ErrPermission) && !errors.Is(err, ErrIsDir) && !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotRegular) && !errors.Is(err, ErrNotDir) && !isInvalid(err):
					t.Errorf("%s %s: %v", name, path, err)
				}
				if got := snap(t, r.at("share/shut")); got != want {
					t.Fatalf("%s %s changed\n%s", name, path, got)
				}
				if _, err := os.Lstat(r.at("home/user/in")); err != nil { // it was moved, removed or replaced
					r.link("/share/shut/dir/secret", "home/user/in")
				}
			}
		}
		if text, err := read(f, "/share/shown/closed/mine"); err != nil || text != "mine" {
			t.Errorf("below one that may be entered: %q, %v", text, err)
		}
	}
	f := r.asRoot("user")
	e, err := f.Write("/share/open/all", strings.NewReader("x"), nil)
	if err != nil || e.Mine || e.Owner != "65534" {
		t.Errorf("what all may write: %+v, %v", e, err)
	}
	e, err = f.Write("/share/open/a/b", strings.NewReader("x"), nil)
	if err != nil || !e.Mine || r.owned("share/open/a") != "1000:1000 0755" {
		t.Errorf("a new one where all may write: %+v, %v", e, err)
	}
	e, err = f.Write("/share/open/user", strings.NewReader("x"), nil)
	if err != nil || !e.Mine {
		t.Errorf("one of the sandbox's, where all may write: %+v, %v", e, err)
	}
	r.put("home/first", 70, 0o600, "70's")
	if _, err := f.Compose(t.Context(), []string{"/share/open/all", "/home/first"}, "/root/whole"); err != nil || r.owned("root/whole") != "1000:1000 0644" {
		t.Errorf("composed: %v", err)
	}
}

// TestAsRootInARootInARaceOfDirectories: a program of the user's puts directories of
// root's, and links, in place of those that are made.
func TestAsRootInARootInARaceOfDirectories(t *testing.T) {
	r := newRoom(t)
	f := r.asRoot("user")
	r.put("spare/", 0, 0o755, "")
	r.put("etc/shadow", 0, 0o600, "root's")
	out := filepath.Join(filepath.Dir(r.dir), "out")
	proctest.Must(t, os.Mkdir(out, 0o777))
	proctest.Must(t, os.Chmod(out, 0o777))
	proctest.Must(t, os.Chown(out, testBase, testBase))
	r.link(out, "home/user/away")
	r.link("/etc", "home/user/etc")
	want := snap(t, out)
	stop, done := make(chan struct{}), make(chan []*os.File)
	go func() {
		var roots []*os.File
		defer func() { done <- roots }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if len(roots) < 1000 && unix.Mkdir(r.at("spare/dir"), 0o755) == nil {
				_ = os.Chown(r.at("spare/dir"), testBase, testBase)
				if dir, err := os.Open(r.at("spare/dir")); err == nil {
					roots = append(roots, dir)
				}
				_ = unix.Renameat2(unix.AT_FDCWD, r.at("spare/dir"), unix.AT_FDCWD, r.at("home/user/roots"), 0)
			}
			for _, with := range []string{"roots", "away", "etc"} {
				for range 2 {
					_ = unix.Renameat2(unix.AT_FDCWD, r.at("home/user/a"), unix.AT_FDCWD, r.at("home/user/"+with), unix.RENAME_EXCHANGE)
				}
			}
		}
	}()
	for i := range 500 {
		_, _ = f.Write("/home/user/a/new", strings.NewReader("x"), nil)
		_, _ = f.Mkdir("/home/user/a/b/c")
		_ = f.Remove("/home/user/a/b")
		if _, err := f.Move("/home/user/a", fmt.Sprint("/home/moved/", i)); err != nil {
			_ = f.Remove("/home/user/a")
		}
	}
	close(stop)
	roots := <-done
	for _, dir := range roots {
		info, err := dir.Stat()
		if uid, gid := idsOf(info); err != nil || uid != testBase || gid != testBase || info.Mode().Perm() != 0o755 {
			t.Errorf("a directory of root's belongs to %d:%d, %v", uid, gid, err)
		}
		proctest.Must(t, dir.Close())
	}
	if got := snap(t, out); got != want || len(roots) == 0 {
		t.Errorf("%d directories of root's, and outside there is\n%s", len(roots), got)
	}
	if got := r.owned("etc") + r.owned("etc/shadow"); got != "0:0 07550:0 0600" {
		t.Errorf("/etc, /etc/shadow: %s", got)
	}
}
