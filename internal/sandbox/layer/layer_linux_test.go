package layer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "layers"))
	proctest.Must(t, err)
	return s
}

// stack is what a sandbox would see of a chain, over a base, and what it writes.
type stack struct {
	t                *testing.T
	merged, up, work string
}

func newStack(t *testing.T, base string, chain Chain) *stack {
	t.Helper()
	proctest.Root(t)
	dir := t.TempDir()
	k := &stack{t, filepath.Join(dir, "merged"), filepath.Join(dir, "up"), filepath.Join(dir, "wk")}
	for _, d := range []string{k.merged, k.up, k.work} {
		proctest.Must(t, os.Mkdir(d, 0o755))
	}
	lower := chain.Dirs
	if !chain.Whole {
		lower = append(append([]string(nil), lower...), base)
	}
	options := "userxattr,lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + k.up + ",workdir=" + k.work
	proctest.Must(t, unix.Mount("overlay", k.merged, "overlay", 0, options))
	t.Cleanup(k.unmount)
	return k
}

func (k *stack) unmount() {
	if k.merged != "" {
		proctest.Must(k.t, unix.Unmount(k.merged, 0))
		k.merged = ""
	}
}

// tree is all that can be seen of a directory, times of directories aside.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	inodes := map[uint64]string{}
	proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprint(&b, rel, " ", info.Mode(), " ", st.Uid, ":", st.Gid)
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x %v", text[:min(len(text), 40)], info.ModTime().UnixNano())
			if st.Nlink > 1 && inodes[st.Ino] != "" {
				fmt.Fprint(&b, " same as ", inodes[st.Ino])
			}
			inodes[st.Ino] = rel
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			fmt.Fprint(&b, " -> ", to)
		}
		value := make([]byte, 99)
		if n, err := unix.Lgetxattr(path, "user.mark", value); err == nil {
			fmt.Fprintf(&b, " mark %s", value[:n])
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

func base(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		for _, sub := range []string{"a", "b", "c"} {
			proctest.Must(t, os.MkdirAll(filepath.Join(dir, name, sub), 0o755))
			proctest.Must(t, os.WriteFile(filepath.Join(dir, name, sub, "f"), []byte("base"), 0o644))
		}
	}
	return dir
}

// shake does something to the tree that a program could do.
func shake(t *testing.T, r *rand.Rand, top string) {
	t.Helper()
	name := func() string {
		parts := []string{top}
		for range 1 + r.IntN(3) {
			parts = append(parts, string("abcf"[r.IntN(4)]))
		}
		return filepath.Join(parts...)
	}
	path := name()
	switch r.IntN(11) {
	case 0, 1:
		_ = os.RemoveAll(path)
	case 2, 3:
		_ = os.MkdirAll(path, 0o755)
	case 4, 5:
		_ = os.WriteFile(path, []byte(fmt.Sprint(r.Int())), 0o640)
	case 6:
		_ = os.Rename(path, name())
	case 7:
		_ = os.Symlink(name(), path)
	case 8:
		_ = os.Chmod(path, fs.FileMode(0o700|r.IntN(0o77)))
		_ = os.Lchown(path, r.IntN(5), r.IntN(5))
	case 9:
		_ = unix.Lsetxattr(path, "user.mark", []byte(fmt.Sprint(r.IntN(100))), 0)
	case 10:
		_ = os.Link(path, name())
	}
}

// TestLayersMeanWhatWasSeen: what a sandbox sees is what one that is made of its layers
// sees, whether they were sealed, copied or merged.
func TestLayersMeanWhatWasSeen(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 0))
		s, below := open(t), base(t)
		var top ID
		var want string
		for round := range 8 {
			var chain Chain
			if top != "" {
				var err error
				chain, err = s.Chain(top)
				proctest.Must(t, err)
			}
			k := newStack(t, below, chain)
			if want != "" && tree(t, k.merged) != want {
				t.Fatalf("seed %d, round %d: a sandbox of %d layers sees\n%s\nwant\n%s", seed, round, len(chain.Dirs), tree(t, k.merged), want)
			}
			for range 40 {
				shake(t, r, k.merged)
			}
			want = tree(t, k.merged)
			var err error
			if round%2 == 0 {
				// While it is mounted, as of a sandbox that stands still.
				top, err = s.Copy(t.Context(), k.up, Meta{Parent: top, By: "test"})
				k.unmount()
			} else {
				k.unmount()
				top, err = s.Seal(k.up, Meta{Parent: top, By: "test"})
			}
			proctest.Must(t, err)
			if round == 4 {
				top, err = s.Merge(t.Context(), top, Meta{By: "test"})
				proctest.Must(t, err)
			}
		}
		merged, err := s.Merge(t.Context(), top, Meta{By: "test"})
		proctest.Must(t, err)
		chain, err := s.Chain(merged)
		proctest.Must(t, err)
		if len(chain.Dirs) != 1 {
			t.Fatalf("merged: %v", chain)
		}
		k := newStack(t, below, chain)
		if got := tree(t, k.merged); got != want {
			t.Fatalf("seed %d: the merged layer shows\n%s\nwant\n%s", seed, got, want)
		}
		k.unmount()
	}
}

func TestACopyKeepsHolesAndLinks(t *testing.T) {
	proctest.Root(t)
	s, dir := open(t), t.TempDir()
	hole := filepath.Join(dir, "hole")
	proctest.Must(t, os.WriteFile(hole, []byte("start"), 0o644))
	proctest.Must(t, os.Truncate(hole, 1<<40))
	f, err := os.OpenFile(hole, os.O_WRONLY, 0)
	proctest.Must(t, err)
	_, err = f.WriteAt([]byte("middle"), 1<<39)
	proctest.Must(t, errors.Join(err, f.Close()))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "one"), []byte("x"), 0o4755))
	proctest.Must(t, os.Chmod(filepath.Join(dir, "one"), 0o755|fs.ModeSetuid))
	proctest.Must(t, os.Link(filepath.Join(dir, "one"), filepath.Join(dir, "two")))
	proctest.Must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o620))
	id, err := s.Copy(t.Context(), dir, Meta{By: "test"})
	proctest.Must(t, err)
	to := s.files(id)
	var st unix.Stat_t
	proctest.Must(t, unix.Stat(filepath.Join(to, "hole"), &st))
	if st.Size != 1<<40 || st.Blocks*512 > 1<<20 {
		t.Errorf("the hole has %d bytes in %d blocks", st.Size, st.Blocks)
	}
	b := make([]byte, 6)
	c, err := os.Open(filepath.Join(to, "hole"))
	proctest.Must(t, err)
	_, err = c.ReadAt(b, 1<<39)
	if c.Close(); err != nil || string(b) != "middle" {
		t.Errorf("%q, %v", b, err)
	}
	one, err1 := os.Stat(filepath.Join(to, "one"))
	two, err2 := os.Stat(filepath.Join(to, "two"))
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(one, two) || one.Mode() != 0o755|fs.ModeSetuid {
		t.Errorf("%v, %v, %v", one.Mode(), two.Mode(), err)
	}
	if info, err := s.Get(id); err != nil || info.Entries != 4 || info.Bytes == 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestADirectoryOfTheMachineBringsNoTricks(t *testing.T) {
	proctest.Root(t)
	s, dir := open(t), t.TempDir()
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	proctest.Must(t, unix.Setxattr(filepath.Join(dir, "d"), opaque, []byte("y"), 0))
	proctest.Must(t, unix.Setxattr(filepath.Join(dir, "d"), "user.overlay.redirect", []byte("/etc"), 0))
	proctest.Must(t, unix.Setxattr(filepath.Join(dir, "d"), "user.kept", []byte("y"), 0))
	proctest.Must(t, unix.Mknod(filepath.Join(dir, "gone"), unix.S_IFCHR, 0))
	proctest.Must(t, unix.Mknod(filepath.Join(dir, "disk"), unix.S_IFBLK|0o666, 8<<8))
	id, err := s.FromDir(t.Context(), dir, Meta{Whole: true, By: "test"})
	proctest.Must(t, err)
	names, err := os.ReadDir(s.files(id))
	if err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	list := make([]byte, 999)
	n, err := unix.Listxattr(filepath.Join(s.files(id), "d"), list)
	if err != nil || string(list[:n]) != "user.kept\x00" {
		t.Errorf("attributes %q, %v", list[:n], err)
	}
	if chain, err := s.Chain(id); err != nil || !chain.Whole {
		t.Errorf("%+v, %v", chain, err)
	}
}

func TestHostileTreesEndWithAnError(t *testing.T) {
	proctest.Root(t)
	s, dir := open(t), t.TempDir()
	t.Run("deep", func(t *testing.T) {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		proctest.Must(t, err)
		for range maxNested + 200 {
			proctest.Must(t, unix.Mkdirat(fd, "d", 0o755))
			next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
			proctest.Must(t, errors.Join(err, unix.Close(fd)))
			fd = next
		}
		proctest.Must(t, unix.Close(fd))
		if _, err := s.Copy(t.Context(), dir, Meta{By: "test"}); !errors.Is(err, ErrLimit) {
			t.Errorf("%.300v", err)
		}
		// A sandbox of such a tree can be sealed, and be removed.
		id, err := s.Seal(filepath.Join(dir, "d"), Meta{By: "test"})
		proctest.Must(t, err)
		s.Release(id, "test")
		proctest.Must(t, s.Sweep(t.Context(), 0))
		if left, err := os.ReadDir(s.path(trashName)); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
	t.Run("many", func(t *testing.T) {
		for i := range 20 {
			proctest.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, 8192), 0o644))
		}
		if _, err := s.Copy(t.Context(), dir, Meta{Limits: Limits{Entries: 10}}); !errors.Is(err, ErrLimit) {
			t.Error(err)
		}
		if _, err := s.Copy(t.Context(), dir, Meta{Limits: Limits{Bytes: 100_000}}); !errors.Is(err, ErrLimit) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Copy(ctx, dir, Meta{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
