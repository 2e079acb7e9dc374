package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

const testBase = 300_000

// room is a directory that stands for a sandbox's root. What put makes is owned by
// somebody inside.
type room struct {
	t    *testing.T
	dir  string
	root *Root
}

func newRoom(t *testing.T) room {
	t.Helper()
	proctest.Root(t)
	top, err := os.MkdirTemp("", "root-")
	proctest.Must(t, err)
	// Those inside may go to their root, as they may in a sandbox.
	proctest.Must(t, os.Chmod(top, 0o755))
	r := room{t: t, dir: filepath.Join(top, "root")}
	t.Cleanup(func() { proctest.Must(t, os.RemoveAll(top)) })
	proctest.Must(t, os.Mkdir(r.dir, 0o755))
	proctest.Must(t, os.Chown(r.dir, testBase, testBase))
	r.put("etc/passwd", 0, 0o644, "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n")
	r.put("etc/group", 0, 0o644, "root:x:0:\nuser:x:1000:\ndocker:x:70:other,user\n")
	r.put("home/user/", 1000, 0o755, "")
	dir, err := os.Open(r.dir)
	proctest.Must(t, err)
	defer dir.Close()
	r.root, err = OpenRoot(dir, testBase)
	proctest.Must(t, err)
	t.Cleanup(func() { proctest.Must(t, r.root.Close()) })
	return r
}

func (r room) at(path string) string { return filepath.Join(r.dir, path) }

// put makes a file, or a directory if the path ends with a slash.
func (r room) put(path string, uid int, mode fs.FileMode, content string) {
	r.t.Helper()
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for i := range parts[:len(parts)-1] {
		if dir := r.at(filepath.Join(parts[:i+1]...)); os.Mkdir(dir, 0o755) == nil {
			proctest.Must(r.t, os.Chown(dir, testBase, testBase))
		}
	}
	if strings.HasSuffix(path, "/") {
		proctest.Must(r.t, os.Mkdir(r.at(path), mode))
	} else {
		proctest.Must(r.t, os.WriteFile(r.at(path), []byte(content), mode))
	}
	proctest.Must(r.t, os.Chown(r.at(path), testBase+uid, testBase+uid))
	proctest.Must(r.t, os.Chmod(r.at(path), mode))
}

func (r room) link(target, path string) {
	r.t.Helper()
	proctest.Must(r.t, os.Symlink(target, r.at(path)))
	proctest.Must(r.t, os.Lchown(r.at(path), testBase+1000, testBase+1000))
}

func (r room) as(name string) FS {
	r.t.Helper()
	u, err := r.root.Account(name)
	proctest.Must(r.t, err)
	return FS{User: u, Root: r.root}
}

func read(f FS, path string) (string, error) {
	c, _, err := f.Open(path)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), errors.Join(err, c.Close())
}

// everything is all that can be done to a path inside.
func everything(f FS) map[string]func(path string) error {
	ctx := context.Background()
	look := func(do func(a *Actor, path string) error) func(string) error {
		return func(path string) error { return f.Do(ctx, func(a *Actor) error { return do(a, path) }) }
	}
	return map[string]func(string) error{
		"read": func(p string) error { _, err := read(f, p); return err },
		"write": func(p string) error {
			_, err := f.Write(p, strings.NewReader("x"), map[string]string{"k": "v"})
			return err
		},
		"append":       func(p string) error { return f.Append(p, []byte("x")) },
		"chmod":        func(p string) error { return f.Chmod(p, func(fs.FileMode) fs.FileMode { return 0o777 }) },
		"copy from":    func(p string) error { return f.Copy(ctx, p, "/home/user/copied") },
		"copy to":      func(p string) error { return f.Copy(ctx, "/etc/passwd", p) },
		"compose from": func(p string) error { _, err := f.Compose(ctx, []string{p}, "/home/user/composed"); return err },
		"compose to": func(p string) error {
			return errors.Join(f.Append("/home/user/part", nil), justErr(f.Compose(ctx, []string{"/home/user/part"}, p)))
		},
		"stat":       func(p string) error { _, err := f.Stat(p); return err },
		"stat below": func(p string) error { _, err := f.Stat(p + "/."); return err },
		"list":       func(p string) error { _, err := f.List(ctx, p, 3); return err },
		"search": func(p string) error {
			_, _, err := f.Search(ctx, p, Query{Text: "e", Limit: 9, MaxLine: 9, MaxBytes: 9999})
			return err
		},
		"mkdir":     func(p string) error { _, err := f.Mkdir(p); return err },
		"move from": func(p string) error { _, err := f.Move(p, "/home/user/moved"); return err },
		"move to": func(p string) error {
			return errors.Join(f.Append("/home/user/moving", nil), justErr(f.Move("/home/user/moving", p)))
		},
		"watch":           func(p string) error { return closed(f.Watch(p, WatchOptions{})) },
		"watch all below": func(p string) error { return closed(f.Watch(p, WatchOptions{Recursive: true, IncludeEntry: true})) },
		"remove one":      f.RemoveOne,
		"remove":          f.Remove,
		"real":            look(func(a *Actor, p string) error { _, err := a.Real(p); return err }),
		"names":           look(func(a *Actor, p string) error { _, err := a.Names(p); return err }),
		"born":            look(func(a *Actor, p string) error { a.Born(p); return nil }),
	}
}

// both has all of two, the second one's as "as root …".
func both(one, two map[string]func(string) error) map[string]func(string) error {
	for name, do := range two {
		one["as root "+name] = do
	}
	return one
}

func justErr(_ Entry, err error) error { return err }

func closed(w Watcher, err error) error {
	if err == nil {
		err = w.Close()
	}
	return err
}

// snap is all that can be seen of a tree.
func snap(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintln(&b, path, info.Mode(), st.Uid, st.Gid, info.Size(), st.Ctim)
		return nil
	}))
	return b.String()
}

func TestNoPathLeadsOutOfARoot(t *testing.T) {
	r := newRoom(t)
	out := filepath.Join(filepath.Dir(r.dir), "out")
	proctest.Must(t, os.Mkdir(out, 0o777))
	proctest.Must(t, os.Chmod(out, 0o777))
	secret := filepath.Join(out, "secret")
	proctest.Must(t, os.WriteFile(secret, []byte("a secret"), 0o666))
	proctest.Must(t, os.Chmod(secret, 0o666))
	// To be found if one gets out, also with the ids of inside.
	proctest.Must(t, os.Chown(secret, testBase, testBase))
	r.put("tmp/", 0, 0o1777, "")
	for name, target := range map[string]string{
		"absolute": secret, "up": strings.Repeat("../", 40) + secret[1:], "sibling": "../../../out/secret",
		"dir": out, "updir": "../../../out", "new": out + "/new", "twice": "absolute", "root": "/",
	} {
		r.link(target, "home/user/"+name)
	}
	want := snap(t, out)
	for who, f := range map[string]FS{"root": r.as("root"), "user": r.as("user"), "root for the user": r.asRoot("user")} {
		for _, path := range []string{
			"/home/user/absolute", "/home/user/up", "/home/user/sibling", "/home/user/dir", "/home/user/dir/secret", "/home/user/updir/secret",
			"/home/user/updir/made", "/home/user/new", "/home/user/twice", secret, "/../../../../../../" + secret, "/home/user/root/../../.." + secret,
			"/proc/1/root" + secret, "../../../../out/secret", "~/../../../out/secret",
		} {
			for name, do := range everything(f) {
				_ = do(path) // some make what is missing: inside
				if got := snap(t, out); got != want {
					t.Fatalf("%s, %s %s, changed what is outside:\n%s", who, name, path, got)
				}
			}
			if text, err := read(f, path); err == nil && strings.Contains(text, "a secret") {
				t.Errorf("%s read %s: %q", who, path, text)
			}
		}
	}
}

func TestARootInARaceOfRenames(t *testing.T) {
	r := newRoom(t)
	out := filepath.Join(filepath.Dir(r.dir), "out")
	proctest.Must(t, os.MkdirAll(filepath.Join(out, "a/b"), 0o777))
	proctest.Must(t, os.WriteFile(filepath.Join(out, "a/b/f"), []byte("a secret"), 0o666))
	proctest.Must(t, filepath.WalkDir(out, func(p string, _ fs.DirEntry, _ error) error {
		return errors.Join(os.Chmod(p, 0o777), os.Chown(p, testBase, testBase))
	}))
	want := snap(t, out)
	r.put("home/user/a/b/f", 1000, 0o666, "inside")
	proctest.Must(t, os.Symlink(strings.Repeat("../", 30)+out[1:]+"/a", r.at("home/user/l")))
	// A rename by somebody outside is what moves ".." from inside to out of the root.
	far := filepath.Join(out, "far")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, r.at("home/user/a"), unix.AT_FDCWD, r.at("home/user/l"), unix.RENAME_EXCHANGE)
			_ = os.Rename(r.at("home/user/a/b"), far)
			_ = os.Rename(far, r.at("home/user/a/b"))
		}
	}()
	for i := range 300 {
		f := []FS{r.as("root"), r.asRoot("user")}[i%2]
		for _, path := range []string{"/home/user/a/b/f", "/home/user/l/b/../b/f", "/home/user/a/b/../../../../../../.." + out + "/a/b/f"} {
			if text, err := read(f, path); err == nil && text != "inside" && text != "x" {
				t.Fatalf("read %q", text)
			}
			_, _ = f.Write(path, strings.NewReader("x"), nil)
		}
	}
	close(stop)
	proctest.Must(t, <-done)
	_ = os.Rename(far, r.at("home/user/a/b"))
	if text, err := os.ReadFile(filepath.Join(out, "a/b/f")); err != nil || string(text) != "a secret" {
		t.Errorf("outside there is %q now, %v; before:\n%s", text, err, want)
	}
}

func TestRootInsideIsNoRootOutside(t *testing.T) {
	r := newRoom(t)
	f, user := r.as("root"), r.as("user")
	t.Run("it does what the modes forbid to others", func(t *testing.T) {
		r.put("home/user/closed/mine", 1000, 0o600, "mine")
		proctest.Must(t, os.Chown(r.at("home/user/closed"), testBase+1000, testBase+1000))
		proctest.Must(t, os.Chmod(r.at("home/user/closed"), 0o700))
		if text, err := read(f, "/home/user/closed/mine"); err != nil || text != "mine" {
			t.Errorf("%q, %v", text, err)
		}
		_, err := f.Write("/home/user/closed/new", strings.NewReader("x"), nil)
		proctest.Must(t, err)
		for path, want := range map[string]uint32{"home/user/closed/new": testBase, "home/user/closed/mine": testBase + 1000} {
			var st unix.Stat_t
			proctest.Must(t, unix.Stat(r.at(path), &st))
			if st.Uid != want || st.Gid != want {
				t.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
			}
		}
		r.put("root/", 0, 0o700, "")
		if _, err := user.List(t.Context(), "/root", 1); !errors.Is(err, ErrPermission) {
			t.Errorf("another user lists root's home: %v", err)
		}
	})
	t.Run("what belongs to nobody inside", func(t *testing.T) {
		foreign := map[string]func() error{}
		for _, owner := range []int{0, 1000, testBase - 1, testBase + RootIDs} {
			name := "share" + strconv.Itoa(owner)
			proctest.Must(t, os.MkdirAll(r.at(name+"/sub"), 0o755))
			proctest.Must(t, os.WriteFile(r.at(name+"/sub/open"), []byte("for all"), 0o644))
			proctest.Must(t, os.WriteFile(r.at(name+"/sub/closed"), []byte("a secret"), 0o600))
			proctest.Must(t, os.MkdirAll(r.at(name+"/shut/in"), 0o755))
			proctest.Must(t, os.Chmod(r.at(name+"/shut"), 0o700))
			proctest.Must(t, filepath.WalkDir(r.at(name), func(p string, _ fs.DirEntry, _ error) error { return os.Lchown(p, owner, owner) }))
			if text, err := read(f, "/"+name+"/sub/open"); err != nil || text != "for all" {
				t.Errorf("%q, %v", text, err)
			}
			foreign["/"+name+"/sub/closed"] = nil
			foreign["/"+name+"/sub/made"] = nil
			foreign["/"+name+"/shut"] = nil
			foreign["/"+name+"/shut/in"] = nil
		}
		want := snap(t, r.dir)
		for path := range foreign {
			for name, do := range both(everything(f), everything(r.asRoot("user"))) {
				name = strings.TrimPrefix(name, "as root ")
				switch name {
				case "stat", "real", "born", "names", "list", "search", "watch", "watch all below", "stat below", "read", "move from", "compose from", "copy from":
					if strings.HasSuffix(path, "made") || name == "stat" || name == "stat below" || name == "real" || name == "born" {
						continue // is not there; shows nothing that others do not see
					}
				case "remove", "remove one":
					if strings.HasSuffix(path, "made") {
						continue
					}
				}
				if strings.HasSuffix(path, "made") && name == "chmod" {
					continue
				}
				if err := do(path); !errors.Is(err, ErrPermission) && !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotDir) && !errors.Is(err, ErrIsDir) && !errors.Is(err, ErrNotRegular) && !isInvalid(err) {
					t.Errorf("%s %s: %v", name, path, err)
				}
			}
		}
		var there []string
		for line := range strings.Lines(snap(t, r.dir)) {
			if strings.Contains(line, "share") {
				there = append(there, line)
			}
		}
		for _, line := range there {
			if !strings.Contains(want, line) {
				t.Errorf("changed: %s", line)
			}
		}
	})
	t.Run("setuid bits", func(t *testing.T) {
		r.put("bin/su", 0, 0o755, "program")
		proctest.Must(t, os.Chmod(r.at("bin/su"), 0o755|fs.ModeSetuid|fs.ModeSetgid))
		_, err := f.Write("/bin/su", strings.NewReader("other"), nil)
		proctest.Must(t, err)
		proctest.Must(t, f.Chmod("/bin/su", func(fs.FileMode) fs.FileMode { return 0o755 | fs.ModeSetuid | fs.ModeSetgid | 0o6000 }))
		if info, err := os.Stat(r.at("bin/su")); err != nil || info.Mode() != 0o755 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	})
	t.Run("ids that there are not inside", func(t *testing.T) {
		proctest.Must(t, os.WriteFile(r.at("odd"), nil, 0o644))
		for outside, want := range map[int]string{0: "65534", testBase: "root", testBase + 1000: "user", testBase + 77: "77", testBase + RootIDs: "65534"} {
			proctest.Must(t, os.Chown(r.at("odd"), outside, outside))
			if e, err := user.Stat("/odd"); err != nil || e.Owner != want || e.Group != want {
				t.Errorf("%d is %s, %s, %v; want %s", outside, e.Owner, e.Group, err, want)
			}
		}
		for _, u := range []User{{UID: RootIDs, GID: 1}, {UID: 1, GID: RootIDs}, {UID: -testBase}, {UID: 1, GID: 1, Groups: []int{1, -testBase}}, {UID: 1<<32 - testBase}} {
			if err := (FS{User: u, Root: r.root}).do(func(*Actor) error { return nil }); !errors.Is(err, ErrPermission) {
				t.Errorf("%+v: %v", u, err)
			}
		}
	})
	t.Run("no thread keeps anything", func(t *testing.T) {
		tasks, err := os.ReadDir("/proc/self/task")
		proctest.Must(t, err)
		seen := map[string]int{}
		for _, task := range tasks {
			status, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
			for line := range strings.Lines(string(status)) {
				if k, _, _ := strings.Cut(line, ":"); k == "Uid" || k == "Gid" || k == "Groups" || k == "CapEff" {
					seen[line]++
				}
			}
		}
		if len(seen) != 4 {
			t.Errorf("threads differ: %v", seen)
		}
	})
}

func isInvalid(err error) bool {
	var invalid *InvalidError
	return errors.As(err, &invalid)
}

func TestRootInsideHasTheCapabilitiesForFilesAlone(t *testing.T) {
	r := newRoom(t)
	for _, base := range []uint32{0, testBase} {
		dir, err := os.Open(r.dir)
		proctest.Must(t, err)
		defer dir.Close()
		root, err := OpenRoot(dir, base)
		proctest.Must(t, err)
		defer root.Close()
		before, err := currentCapabilities()
		proctest.Must(t, err)
		for uid, want := range map[int]uint32{0: fileCapabilities & before[0].Permitted, 1000: 0} {
			proctest.Must(t, FS{User: User{UID: uid, GID: uid}, Root: root}.do(func(a *Actor) error {
				caps, err := currentCapabilities()
				if caps[0].Effective != want || caps[1].Effective != 0 {
					t.Errorf("base %d, uid %d: capabilities %x %x", base, uid, caps[0].Effective, caps[1].Effective)
				}
				if euid := os.Geteuid(); euid != int(base)+uid {
					t.Errorf("base %d, uid %d: euid %d", base, uid, euid)
				}
				return errors.Join(err, a.Pause(func() {
					if caps, err := currentCapabilities(); err != nil || *caps != *before {
						t.Errorf("waits with capabilities %x, %v", caps, err)
					}
				}))
			}))
			if caps, err := currentCapabilities(); err != nil || *caps != *before {
				t.Errorf("goes on with capabilities %x, %v", caps, err)
			}
		}
	}
}

func TestWhatTheKernelMakesUpIsNotWrittenFromInside(t *testing.T) {
	r := newRoom(t)
	r.put("proc/", 0, 0o755, "")
	proctest.Must(t, unix.Mount("proc", r.at("proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	t.Cleanup(func() { proctest.Must(t, unix.Unmount(r.at("proc"), unix.MNT_DETACH)) })
	dir, err := os.Open(r.dir)
	proctest.Must(t, err)
	defer dir.Close()
	for _, base := range []uint32{0, testBase} {
		root, err := OpenRoot(dir, base)
		proctest.Must(t, err)
		defer root.Close()
		f := FS{User: User{Name: "root", Home: "/root"}, Root: root}
		name, err := os.ReadFile("/proc/self/comm")
		proctest.Must(t, err)
		all := both(everything(f), everything(FS{User: User{Name: "user", Home: "/", UID: 1000, GID: 1000}, Root: root, AsRoot: true}))
		looks := []string{"read", "stat", "stat below", "born", "real", "search", "watch", "watch all below", "names", "list", "copy from"}
		for _, path := range []string{"/proc/self/comm", "/proc/self/new", "/proc/new"} {
			for name, do := range all {
				// It may be looked at, and joined with others; to remove what is missing is no error.
				if name := strings.TrimPrefix(name, "as root "); slices.Contains(looks, name) || name == "compose from" || name == "remove" {
					continue
				}
				if err := do(path); err == nil {
					t.Errorf("base %d: %s %s went through", base, name, path)
				}
			}
		}
		// Nothing leads through a magic link, looks neither: with those that are missing the answer is the same. A look at
		// the link itself finds it. If this fails, nothing of the machine is removed or changed: what exists is only looked at.
		for path, c := range map[string]struct{ isLink, exists bool }{
			"/proc/self/root": {true, true}, "/proc/self/cwd": {true, true}, "/proc/self/exe": {true, true}, "/proc/self/fd/0": {true, false},
			"/proc/self/root/etc": {false, true}, "/proc/self/root/etc/passwd": {false, true},
			"/proc/1/root/etc/passwd": {false, true}, "/proc/self/cwd/doc.go": {false, true},
			"/proc/self/root/x": {}, "/proc/1/root/x": {}, "/proc/self/cwd/x": {}, "/proc/self/fd/0/x": {},
		} {
			for name, do := range all {
				switch short := strings.TrimPrefix(name, "as root "); {
				case short == "born": // it has no error
				case c.exists && !slices.Contains(looks, short):
				case c.isLink && (short == "stat" || short == "stat below"):
					if e, err := f.Stat(path); err != nil || do(path) != nil || e.Target != path {
						t.Errorf("base %d: %s %s: %+v, %v", base, name, path, e, err)
					}
				default:
					if err := do(path); !errors.Is(err, ErrPermission) {
						t.Errorf("base %d: %s %s: %v", base, name, path, err)
					}
				}
			}
		}
		if now, err := os.ReadFile("/proc/self/comm"); err != nil || !bytes.Equal(now, name) {
			t.Errorf("base %d: the test is called %q now, %v", base, now, err)
		}
		for _, link := range []string{"/proc/self/fd/0", "/proc/1/root", "/proc/1/cwd", "/proc/self/exe"} {
			if _, err := read(f, link); !errors.Is(err, ErrPermission) && !errors.Is(err, ErrNotExist) {
				t.Errorf("base %d: %s: %v", base, link, err)
			}
		}
		if base == 0 {
			continue // root of this machine may read what its root may
		}
		for _, path := range []string{"/proc/slabinfo", "/proc/kpagecount", "/proc/1/environ", "/proc/1/mem"} {
			if text, err := read(f, path); err == nil {
				t.Errorf("%s: %d bytes", path, len(text))
			}
		}
	}
}

func TestAccountsOfARoot(t *testing.T) {
	r := newRoom(t)
	text := func(u User, err error) string {
		if err != nil {
			return "unknown"
		}
		return fmt.Sprintf("%s %d:%d %v %s", u.Name, u.UID, u.GID, u.Groups, u.Home)
	}
	for name, want := range map[string]string{
		"":                       "root 0:0 [0] /root",
		"root":                   "root 0:0 [0] /root",
		"user":                   "user 1000:1000 [1000 70] /home/user",
		"1000":                   "user 1000:1000 [1000 70] /home/user",
		"1000:5":                 "user 1000:5 [] /home/user",
		"user:docker":            "user 1000:70 [] /home/user",
		"root:7":                 "root 0:7 [] /root",
		"5:docker":               "5 5:70 [] /",
		"user:":                  "unknown",
		":docker":                "unknown",
		"user:nobody":            "unknown",
		"77":                     "77 77:77 [77] /",
		"65536":                  "unknown",
		"77:65536":               "unknown",
		"nobody":                 "unknown",
		"9999999999999":          "unknown",
		strings.Repeat("x", 300): "unknown",
		"use":                    "unknown",
	} {
		if got := text(r.root.Account(name)); got != want {
			t.Errorf("%.20q is %q, want %q", name, got, want)
		}
	}
	for i := range 100 {
		if _, err := r.root.Account(strconv.Itoa(2000 + i)); err != nil || len(r.root.known) > maxKnownInside {
			t.Fatalf("%d are known, %v", len(r.root.known), err)
		}
	}
	passwd := r.at("etc/passwd")
	own := func(name string) { proctest.Must(t, os.Lchown(r.at(name), testBase, testBase)) }
	for name, c := range map[string]struct {
		make func() error
		want string
	}{
		"a hole of 1 GiB":  {func() error { return errors.Join(os.WriteFile(passwd, nil, 0o644), os.Truncate(passwd, 1<<30)) }, "unknown"},
		"one endless line": {func() error { return os.WriteFile(passwd, []byte(strings.Repeat("user:x:1:", 1<<19)), 0o644) }, "unknown"},
		"NULs":             {func() error { return os.WriteFile(passwd, []byte("user\x00:x:1:1::/:\nuser:x:2:2::/a\x00b:\n"), 0o644) }, "unknown"},
		"behind the limit of lines": {func() error {
			return os.WriteFile(passwd, []byte(strings.Repeat("a:x\n", maxAccountLines)+"user:x:1:1::/:\n"), 0o644)
		}, "unknown"},
		"behind the limit of bytes": {func() error {
			return os.WriteFile(passwd, []byte(strings.Repeat(strings.Repeat("a", 99)+"\n", maxAccounts/100+1)+"user:x:1:1::/:\n"), 0o644)
		}, "unknown"},
		"ids that there are not": {func() error {
			return os.WriteFile(passwd, []byte("user:x:65536:1::/:\nuser:x:-1:1::/:\nuser:x:1:4294967295::/:\nuser:x:+1:1::/:\nuser:x:3:4::relative:\n"), 0o644)
		}, "user 3:4 [4 70] /"},
		"short lines": {func() error {
			return os.WriteFile(passwd, []byte("user:x:1\nuser\n::::::\n\n:user:x:1:1::/:\n"), 0o644)
		}, "unknown"},
		"no newline at the end":        {func() error { return os.WriteFile(passwd, []byte("user:x:8:9::/h:/bin/sh"), 0o644) }, "user 8:9 [9 70] /h"},
		"a FIFO":                       {func() error { return syscall.Mkfifo(passwd, 0o644) }, "unknown"},
		"a device":                     {func() error { return syscall.Mknod(passwd, syscall.S_IFCHR|0o666, 1<<8|5) }, "unknown"},
		"a directory":                  {func() error { return os.Mkdir(passwd, 0o755) }, "unknown"},
		"nothing":                      {func() error { return nil }, "unknown"},
		"a link to this machine's":     {func() error { return os.Symlink("/proc/1/root/etc/passwd", passwd) }, "unknown"},
		"a link to another inside":     {func() error { r.put("etc/p", 0, 0o644, "user:x:5:5::/:\n"); return os.Symlink("p", passwd) }, "user 5:5 [5 70] /"},
		"a link to itself":             {func() error { return os.Symlink("passwd", passwd) }, "unknown"},
		"a file of nobody inside":      {func() error { return os.Symlink("foreign", passwd) }, "unknown"},
		"root that is somebody else's": {func() error { return os.WriteFile(passwd, []byte("root:x:1000:1000::/x:\nuser:x:0:0::/:\n"), 0o644) }, "user 0:0 [0 70] /"},
	} {
		proctest.Must(t, os.RemoveAll(passwd))
		proctest.Must(t, os.WriteFile(r.at("etc/foreign"), []byte("user:x:1:1::/:\n"), 0o600))
		proctest.Must(t, c.make())
		if _, err := os.Lstat(passwd); err == nil {
			own("etc/passwd")
		}
		if got := text(r.root.Account("user")); got != c.want {
			t.Errorf("%s: user is %q, want %q", name, got, c.want)
		}
		if u, err := r.root.Account(""); err != nil || name != "root that is somebody else's" && u.UID != 0 {
			t.Errorf("%s: root is %+v, %v", name, u, err)
		}
		// Those who look at files see numbers at the least.
		if _, err := (FS{User: User{UID: 1000, GID: 1000}, Root: r.root}).List(t.Context(), "/", 2); err != nil {
			t.Errorf("%s: list: %v", name, err)
		}
	}
}

func TestRemovingATreeInside(t *testing.T) {
	r := newRoom(t)
	f := r.as("user")
	t.Run("one that is deeper than a path can say", func(t *testing.T) {
		fd, err := unix.Open(r.at("home/user"), unix.O_PATH|unix.O_DIRECTORY, 0)
		proctest.Must(t, err)
		for range 3000 {
			proctest.Must(t, unix.Mkdirat(fd, "deep", 0o755))
			proctest.Must(t, unix.Fchownat(fd, "deep", testBase+1000, testBase+1000, 0))
			next, err := unix.Openat(fd, "deep", unix.O_PATH|unix.O_DIRECTORY, 0)
			proctest.Must(t, err)
			proctest.Must(t, unix.Close(fd))
			fd = next
		}
		proctest.Must(t, unix.Close(fd))
		proctest.Must(t, f.Remove("/home/user/deep"))
		if names, err := os.ReadDir(r.at("home/user")); err != nil || len(names) != 0 {
			t.Errorf("left: %v, %v", names, err)
		}
	})
	t.Run("one with a mount in it", func(t *testing.T) {
		r.put("home/user/tree/mount/", 1000, 0o755, "")
		proctest.Must(t, os.Chown(r.at("home/user/tree"), testBase+1000, testBase+1000))
		proctest.Must(t, unix.Mount("tmpfs", r.at("home/user/tree/mount"), "tmpfs", 0, "uid="+strconv.Itoa(testBase+1000)))
		unmounted := sync1(func() { proctest.Must(t, unix.Unmount(r.at("home/user/tree/mount"), unix.MNT_DETACH)) })
		defer unmounted()
		r.put("home/user/tree/mount/kept", 1000, 0o644, "kept")
		for _, f := range []FS{f, r.as("root")} {
			if err := f.Remove("/home/user/tree"); !errors.Is(err, ErrBusy) {
				t.Errorf("a removal: %v", err)
			}
		}
		if _, err := os.Stat(r.at("home/user/tree/mount/kept")); err != nil {
			t.Error(err)
		}
		unmounted()
		proctest.Must(t, f.Remove("/home/user/tree"))
	})
	t.Run("files, links and what is not there", func(t *testing.T) {
		r.link("/etc", "home/user/link")
		r.put("home/user/file", 1000, 0o644, "")
		for _, name := range []string{"link", "file", "nothing", "file/below"} {
			if err := f.Remove("/home/user/" + name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if names, err := os.ReadDir(r.at("home/user")); err != nil || len(names) != 0 {
			t.Errorf("left: %v, %v", names, err)
		}
		if err := f.Remove("/etc/passwd"); !errors.Is(err, ErrPermission) {
			t.Errorf("root's file: %v", err)
		}
		if _, err := os.Stat(r.at("etc/group")); err != nil {
			t.Error(err)
		}
	})
}

// sync1 returns a function that calls do when it is called first.
func sync1(do func()) func() {
	done := false
	return func() {
		if !done {
			done = true
			do()
		}
	}
}

func TestWatchInside(t *testing.T) {
	r := newRoom(t)
	f := r.as("user")
	r.put("home/user/w/", 1000, 0o755, "")
	w := watch(t, f, "/home/user/w", WatchOptions{Recursive: true, IncludeEntry: true})
	r.put("home/user/w/new/", 1000, 0o755, "")
	until(t, w, "new", OpCreate)
	// Its watch may come after the file: then the file is found.
	r.put("home/user/w/new/file", 1000, 0o644, "x")
	events := until(t, w, "new/file", OpWrite)
	for _, e := range events {
		if e.Entry != nil && (e.Entry.Owner == "0" || !strings.HasPrefix(e.Entry.Path, "/home/user/w/")) {
			t.Errorf("%+v", *e.Entry)
		}
	}
	proctest.Must(t, os.Rename(r.at("home/user/w/new"), r.at("home/user/w/other")))
	until(t, w, "other/file", OpCreate) // found when its directory was watched
	proctest.Must(t, os.Remove(r.at("home/user/w/other/file")))
	until(t, w, "other/file", OpRemove)
	// A directory that becomes a link to one outside is watched no more.
	out := t.TempDir()
	proctest.Must(t, os.RemoveAll(r.at("home/user/w/other")))
	r.link(out, "home/user/w/other")
	proctest.Must(t, os.WriteFile(filepath.Join(out, "outside"), nil, 0o644))
	r.put("home/user/w/last", 1000, 0o644, "")
	for _, e := range until(t, w, "last", OpCreate) {
		if strings.Contains(e.Name, "outside") {
			t.Errorf("saw %v", e)
		}
	}
	proctest.Must(t, os.RemoveAll(r.at("home/user/w")))
	until(t, w, ".", OpRemove)
	if _, err := f.Watch("/root", WatchOptions{}); !errors.Is(err, ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

func TestAClosedRootDoesNothing(t *testing.T) {
	r := newRoom(t)
	f := r.as("user")
	other, err := OpenRoot(r.root.dir, testBase)
	proctest.Must(t, err)
	f.Root = other
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if text, err := read(f, "/etc/passwd"); err == nil && !strings.HasPrefix(text, "root:x:0:0::/root:/bin/sh\nuser") {
				t.Errorf("read %q", text)
				return
			}
		}
	}()
	proctest.Must(t, other.Close())
	select {
	case <-other.Gone():
	default:
		t.Error("nobody who watches is told")
	}
	for range 100 { // descriptors of other directories take its number
		d, err := os.Open("/")
		proctest.Must(t, err)
		defer d.Close()
	}
	if _, err := read(f, "/etc/passwd"); err == nil {
		t.Error("it could be read")
	}
	close(stop)
	<-done
}

func TestAnEndedRootSaysWhy(t *testing.T) {
	r := newRoom(t)
	f := r.as("user")
	other, err := OpenRoot(r.root.dir, testBase)
	proctest.Must(t, err)
	f.Root = other
	why := errors.New("the place is gone")
	proctest.Must(t, other.End(why))
	for name, err := range map[string]error{
		"a read":       second(read(f, "/etc/passwd")),
		"a listing":    second(f.List(t.Context(), "/etc", 1)),
		"a look":       second(f.Stat("/etc")),
		"a write":      second(f.Write("/home/user/x", strings.NewReader("x"), nil)),
		"a removal":    f.Remove("/home/user/x"),
		"a directory":  second(f.Mkdir("/home/user/d")),
		"root's look":  second(other.Stat("/etc")),
		"who is there": second(other.Account("user")),
	} {
		if !errors.Is(err, why) {
			t.Errorf("%s: %v; want %v", name, err, why)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestTheSameInARoot runs the tests of this package with a Root that is the machine's
// own: what holds for the machine holds in a Root.
func TestTheSameInARoot(t *testing.T) {
	if os.Getenv(inRoot) != "" {
		return
	}
	proctest.Root(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.skip=Root|TestWalkToIsOpenat2", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inRoot+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
