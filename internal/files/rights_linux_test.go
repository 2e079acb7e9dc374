package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// stranger acts for nobody, with a home of its own that it can reach, and one
// more group; root's directory beside it is closed. The tests that need it are
// empty without root, who alone acts for others.
func stranger(t *testing.T) (f FS, closed string) {
	t.Helper()
	u, err := Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	u.Groups = append(u.Groups, 54321)
	// Those of t.TempDir are closed to others.
	top, err := os.MkdirTemp("", "files-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	u.Home, closed = filepath.Join(top, "home"), filepath.Join(top, "closed")
	for _, err := range []error{
		os.Chmod(top, 0o755), os.Mkdir(u.Home, 0o755), os.Chown(u.Home, u.UID, u.GID), os.Mkdir(closed, 0o700),
		os.WriteFile(filepath.Join(closed, "secret"), []byte("root's"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return FS{User: u, Root: machineRoot}, closed
}

// asUser runs as the user, outside of the package.
func link(t *testing.T, f FS, target, name string) {
	t.Helper()
	path := filepath.Join(f.User.Home, name)
	proctest.Must(t, os.Symlink(target, path))
	proctest.Must(t, os.Lchown(path, f.User.UID, f.User.GID))
}

// operations are all that can be done to a path.
func operations(t *testing.T, f FS) map[string]func(path string) error {
	own := func(name string) string {
		path := filepath.Join(f.User.Home, name)
		proctest.Must(t, os.WriteFile(path, []byte("mine"), 0o644))
		proctest.Must(t, os.Chown(path, f.User.UID, f.User.GID))
		return path
	}
	return map[string]func(string) error{
		"read": func(path string) error {
			c, _, err := f.Open(path)
			if err != nil {
				return err
			}
			return c.Close()
		},
		"write":        func(path string) error { _, err := f.Write(path, strings.NewReader("x"), nil); return err },
		"append":       func(path string) error { return f.Append(path, []byte("x")) },
		"chmod":        func(path string) error { return f.Chmod(path, func(fs.FileMode) fs.FileMode { return 0o777 }) },
		"copy from it": func(path string) error { return f.Copy(t.Context(), path, filepath.Join(f.User.Home, "copy")) },
		"copy to it":   func(path string) error { return f.Copy(t.Context(), own("source"), path) },
		"compose from it": func(path string) error {
			_, err := f.Compose(t.Context(), []string{path}, filepath.Join(f.User.Home, "composed"))
			return err
		},
	}
}

func TestWhatAUserMayNotDoItself(t *testing.T) {
	proctest.Root(t)
	f, closed := stranger(t)
	secret := filepath.Join(closed, "secret")
	link(t, f, secret, "last")
	link(t, f, closed, "middle")
	link(t, f, "/root", "roots-home")
	inHome := func(name string) string { return filepath.Join(f.User.Home, name) }
	unharmed := func(t *testing.T) {
		t.Helper()
		info, err := os.Lstat(secret)
		if err != nil {
			t.Fatal(err)
		}
		if uid, _ := idsOf(info); uid != 0 || info.Mode().Perm() != 0o644 {
			t.Errorf("root's file now belongs to %d with mode %v", uid, info.Mode())
		}
		if text, err := os.ReadFile(secret); err != nil || string(text) != "root's" {
			t.Errorf("root's file now holds %q, %v", text, err)
		}
		if names, err := os.ReadDir(closed); err != nil || len(names) != 1 {
			t.Errorf("root's directory now holds %v, %v", names, err)
		}
	}
	for _, at := range []struct{ name, path string }{
		{"a path of root's", secret},
		{"a last link", inHome("last")},
		{"a link in the middle", inHome("middle/secret")},
		{"a new file behind a link", inHome("middle/new")},
	} {
		for name, do := range operations(t, f) {
			t.Run(name+", "+at.name, func(t *testing.T) {
				if err := do(at.path); !errors.Is(err, ErrPermission) {
					t.Errorf("got %v", err)
				}
				unharmed(t)
			})
		}
	}
	for name, do := range map[string]func() error{
		"stat":           func() error { _, err := f.Stat(inHome("middle/secret")); return err },
		"list":           func() error { _, err := f.List(t.Context(), inHome("middle"), 1); return err },
		"make a dir":     func() error { _, err := f.Mkdir(inHome("middle/dir")); return err },
		"make parents":   func() error { _, err := f.Write(inHome("middle/a/b"), strings.NewReader(""), nil); return err },
		"move from it":   func() error { _, err := f.Move(inHome("middle/secret"), inHome("got")); return err },
		"move to it":     func() error { _, err := f.Move(inHome("last"), inHome("middle/x")); return err },
		"remove":         func() error { return f.Remove(inHome("middle/secret")) },
		"remove one":     func() error { return f.RemoveOne(inHome("middle/secret")) },
		"watch":          func() error { _, err := f.Watch(inHome("middle"), WatchOptions{}); return err },
		"watch below it": func() error { _, err := f.Watch(inHome("middle"), WatchOptions{Recursive: true}); return err },
		"names": func() error {
			return f.Do(t.Context(), func(a *Actor) error { _, err := a.Names(closed); return err })
		},
		"real path": func() error {
			return f.Do(t.Context(), func(a *Actor) error { _, err := a.Real(inHome("middle/secret")); return err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := do(); !errors.Is(err, ErrPermission) {
				t.Errorf("got %v", err)
			}
			unharmed(t)
		})
	}
	t.Run("a link tells nothing of where it may not lead", func(t *testing.T) {
		e, err := f.Stat(inHome("last"))
		if err != nil || e.Type != TypeOther || e.Mode != 0 || e.Metadata != nil {
			t.Errorf("%+v, %v", e, err)
		}
	})
	t.Run("the kernel's settings, which look at the effective user alone", func(t *testing.T) {
		if _, err := f.Write("/proc/sys/kernel/core_pattern", strings.NewReader("x"), nil); !errors.Is(err, ErrPermission) {
			t.Errorf("write: %v", err)
		}
	})
	t.Run("what is made is the user's, and what is the group's can be written", func(t *testing.T) {
		if _, err := f.Write("a/b/c", strings.NewReader("x"), nil); err != nil {
			t.Fatal(err)
		}
		proctest.Must(t, os.Chown(inHome("a"), 0, 54321))
		proctest.Must(t, os.Chmod(inHome("a"), 0o770))
		proctest.Must(t, os.WriteFile(inHome("part"), []byte("y"), 0o644))
		if _, err := f.Compose(t.Context(), []string{"part"}, "a/whole"); err != nil {
			t.Fatal(err)
		}
		for path, owner := range map[string]string{"a": "root", "a/b": "nobody", "a/b/c": "nobody", "a/whole": "nobody"} {
			if e, err := f.Stat(path); err != nil || e.Owner != owner {
				t.Errorf("%s belongs to %q, %v", path, e.Owner, err)
			}
		}
	})
}

// TestNoThreadKeepsTheRightsOfAUser looks at all threads while and after many
// act for others.
func TestNoThreadKeepsTheRightsOfAUser(t *testing.T) {
	proctest.Root(t)
	f, _ := stranger(t)
	done := make(chan error)
	const workers = 32
	for i := range workers {
		go func() {
			for n := range 50 {
				if _, err := f.Write(strconv.Itoa(i), strings.NewReader(strings.Repeat("x", n*3000)), nil); err != nil {
					done <- err
					return
				}
				err := f.Do(context.Background(), func(a *Actor) error {
					if os.Geteuid() != f.User.UID {
						return errors.New("acts with the daemon's rights")
					}
					return a.Pause(func() {
						if os.Geteuid() != 0 {
							t.Error("waits with the user's rights")
						}
					})
				})
				if err != nil {
					done <- err
					return
				}
				if os.Geteuid() != 0 {
					done <- errors.New("goes on with the user's rights")
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "Uid:") && strings.Join(strings.Fields(line), " ") != "Uid: 0 0 0 0" {
				t.Errorf("thread %s: %s", task.Name(), line)
			}
		}
	}
}

func TestAPanicInDoIsTheCallersAndCostsNoRights(t *testing.T) {
	proctest.Root(t)
	f, _ := stranger(t)
	defer func() {
		if recover() == nil {
			t.Error("the panic did not come")
		}
		if os.Geteuid() != 0 {
			t.Error("the rights are the user's")
		}
	}()
	_ = f.Do(t.Context(), func(*Actor) error { panic("boom") })
}

// sharedMemory is a file that only its descriptor leads to, as the keeper's
// board is.
func sharedMemory(t *testing.T) (path string, check func()) {
	t.Helper()
	fd, err := unix.MemfdCreate("board", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "board")
	t.Cleanup(func() { file.Close() })
	if _, err := file.WriteString("shared"); err != nil {
		t.Fatal(err)
	}
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(fd), func() {
		t.Helper()
		b := make([]byte, 16)
		if n, err := file.ReadAt(b, 0); n != 6 || !errors.Is(err, io.EOF) || string(b[:n]) != "shared" {
			t.Errorf("the shared memory holds %q, %v", b[:n], err)
		}
	}
}

func TestLinksOfProcAreNotFollowed(t *testing.T) {
	users := map[string]FS{"the daemon's own user": self(t)}
	if os.Geteuid() == 0 {
		f, _ := stranger(t)
		users["another user"] = f
	}
	for who, f := range users {
		t.Run(who, func(t *testing.T) {
			path, check := sharedMemory(t)
			link(t, f, path, "out.txt")
			link(t, f, "out.txt", "twice")
			link(t, f, "/proc/self/cwd", "dir")
			link(t, f, "/proc/self/root", "root")
			inHome := func(name string) string { return filepath.Join(f.User.Home, name) }
			paths := []string{
				path, "/proc/self/fd/" + filepath.Base(path), "/proc/thread-self/fd/" + filepath.Base(path), "/dev/fd/" + filepath.Base(path),
				inHome("out.txt"), inHome("twice"), "/proc/self/root" + inHome("new"), inHome("root") + inHome("new"), inHome("dir/new"), "/proc/self/cwd/new",
			}
			for _, p := range paths {
				for name, do := range operations(t, f) {
					if err := do(p); !errors.Is(err, ErrPermission) {
						t.Errorf("%s %s: %v", name, p, err)
					}
					check()
				}
			}
			for _, dir := range []string{"/proc/self/root", inHome("root"), inHome("dir")} {
				if _, err := f.List(t.Context(), dir, 1); !errors.Is(err, ErrPermission) {
					t.Errorf("list %s: %v", dir, err)
				}
				if _, err := f.Watch(dir, WatchOptions{}); !errors.Is(err, ErrPermission) {
					t.Errorf("watch %s: %v", dir, err)
				}
				if _, err := f.Move(inHome("twice"), dir+"/moved"); !errors.Is(err, ErrPermission) {
					t.Errorf("move to %s: %v", dir, err)
				}
				if _, err := f.Stat(dir + "/etc"); !errors.Is(err, ErrPermission) {
					t.Errorf("stat below %s: %v", dir, err)
				}
				if _, err := f.Move(dir+"/none", inHome("moved")); !errors.Is(err, ErrPermission) {
					t.Errorf("move from %s: %v", dir, err)
				}
				if err := f.Remove(dir + "/none"); !errors.Is(err, ErrPermission) {
					t.Errorf("remove below %s: %v", dir, err)
				}
			}
			for _, plain := range []string{"/proc/version", "/proc/self/status", "/proc/mounts", "/proc/cpuinfo", "/proc/sys/kernel/ostype"} {
				c, info, err := f.Open(plain)
				if err != nil {
					t.Errorf("read %s: %v", plain, err)
					continue
				}
				if text, err := io.ReadAll(c); err != nil || len(text) == 0 || int64(len(text)) != info.Size() {
					t.Errorf("read %s: %d bytes of %d, %v", plain, len(text), info.Size(), err)
				}
			}
		})
	}
}

// TestASwapBetweenCheckAndUse lets a user exchange a directory and a link to
// root's, as fast as it can, while the daemon works for it.
func TestASwapBetweenCheckAndUse(t *testing.T) {
	proctest.Root(t)
	f, closed := stranger(t)
	inHome := func(name string) string { return filepath.Join(f.User.Home, name) }
	for _, dir := range []string{"d", "was"} {
		if _, err := f.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(dir+"/secret", strings.NewReader("mine"), nil); err != nil {
			t.Fatal(err)
		}
	}
	link(t, f, closed, "l")
	stop, swapped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, inHome("d"), unix.AT_FDCWD, inHome("l"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 300 {
		for name, do := range operations(t, f) {
			_ = do(inHome("d/secret")) // fails or not, as it hits
			if text, err := os.ReadFile(filepath.Join(closed, "secret")); err != nil || string(text) != "root's" {
				t.Fatalf("%s: root's file holds %q, %v", name, text, err)
			}
		}
		_ = f.Remove(inHome("d/secret"))
		_, _ = f.Mkdir(inHome("d/made"))
		_ = f.Remove(inHome("d/made"))
		_, _ = f.Write(inHome("d/secret"), strings.NewReader("mine"), nil)
	}
	close(stop)
	<-swapped
	info, err := os.Lstat(filepath.Join(closed, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	if uid, _ := idsOf(info); uid != 0 || info.Mode().Perm() != 0o644 {
		t.Errorf("root's file belongs to %d with mode %v", uid, info.Mode())
	}
	for _, name := range []string{"copy", "composed"} {
		if text, err := os.ReadFile(inHome(name)); err == nil && strings.Contains(string(text), "root's") {
			t.Errorf("the user got root's file as %s", name)
		}
	}
	if names, err := os.ReadDir(closed); err != nil || len(names) != 1 {
		t.Errorf("root's directory holds %v, %v", names, err)
	}
}

// TestWalkToIsOpenat2 holds the fallback for older kernels to the same answers.
func TestWalkToIsOpenat2(t *testing.T) {
	f := tree(t)
	inHome := func(name string) string { return filepath.Join(f.User.Home, name) }
	magic, _ := sharedMemory(t)
	for name, target := range map[string]string{
		"abs": inHome("dir/sub"), "up": "dir/sub/../..", "slash": "dir/", "chain": "link", "magic": magic, "far": "dir/missing/x", "tofile": "dir/file",
	} {
		proctest.Must(t, os.Symlink(target, inHome(name)))
	}
	paths := []string{
		"/", "/proc", "/proc/self", "/proc/mounts", "/proc/self/fd", "/proc/self/fd/0", "/proc/self/exe", "/proc/self/cwd/x", "/proc/self/ns/pid", magic,
		"/dev/stdin", "/dev/fd/0", "/etc/os-release",
	}
	for _, name := range []string{
		"", "dir", "dir/file", "dir/sub/deep/leaf", "link", "link/file", "link/sub/deep", "dangling", "dangling/x", "loop", "loop/x", "fifo", "missing", "missing/x",
		"dir/file/x", "abs/deep", "up", "up/dir", "slash", "slash/file", "chain", "chain/file", "magic", "magic/x", "far", "tofile", "tofile/x",
	} {
		paths = append(paths, filepath.Clean(inHome(name)))
	}
	for _, flags := range []int{unix.O_PATH, unix.O_PATH | unix.O_NOFOLLOW} {
		for _, path := range paths {
			want, wantErr := openat2(path, flags|unix.O_CLOEXEC, 0)
			got, gotErr := walkTo(path, flags|unix.O_CLOEXEC, 0)
			if errors.Is(gotErr, errMagicLink) {
				gotErr = unix.ELOOP
			}
			if !errors.Is(gotErr, wantErr) && !(gotErr == nil && wantErr == nil) {
				t.Errorf("%s with %#x: %v, want %v", path, flags, gotErr, wantErr)
				continue
			}
			if wantErr != nil {
				continue
			}
			var a, b unix.Stat_t
			proctest.Must(t, errors.Join(unix.Fstat(want, &a), unix.Fstat(got, &b), unix.Close(want), unix.Close(got)))
			if a.Ino != b.Ino || a.Dev != b.Dev {
				t.Errorf("%s with %#x leads elsewhere", path, flags)
			}
		}
	}
	for name, want := range map[string]string{"dangling": "nowhere", "tofile": "dir/file", "fresh": "fresh"} {
		fd, err := walkTo(inHome(name), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Errorf("create %s: %v", name, err)
			continue
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(inHome(want)); err != nil {
			t.Error(err)
		}
	}
	if _, err := walkTo(inHome("magic"), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600); !errors.Is(err, errMagicLink) {
		t.Errorf("create through a magic link: %v", err)
	}
}

func TestWhatTheKernelMakesUpNeverBlocksAndHasAnEnd(t *testing.T) {
	f := self(t)
	for _, path := range []string{"/proc/kmsg", "/proc/kcore", "/proc/self/pagemap", "/proc/self/mem", "/sys/kernel/tracing/trace_pipe"} {
		if _, err := os.Lstat(path); err != nil {
			continue // not on this kernel
		}
		c, info, err := f.Open(path)
		if err != nil {
			continue // refused is well
		}
		if info.Size() > MaxPseudo {
			t.Errorf("%s has %d bytes", path, info.Size())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := f.Open("/proc/kcore"); os.Geteuid() == 0 && !errors.Is(err, ErrEndless) && !errors.Is(err, ErrNotExist) && !errors.Is(err, ErrPermission) {
		t.Errorf("/proc/kcore: %v", err)
	}
}
