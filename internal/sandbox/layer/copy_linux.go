package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
)

func bootID() string { return procfs.BootID() }

// syncAll forces the filesystem of a directory to the disk.
func syncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return os.NewSyscallError("syncfs", eintr.Do(func() error { return unix.Syncfs(int(d.Fd())) }))
}

// Attributes of an overlay. A directory that is opaque hides the one below it. One
// with an origin may have removed files in it: without that, an overlay takes them for
// files that are there if the directory is in no other layer. The value, where it
// came from, means nothing in a copy, and no value is one that is not known.
const (
	overlayPrefix = "user.overlay."
	opaque        = overlayPrefix + "opaque"
	origin        = overlayPrefix + "origin"
)

var stale = []string{origin, overlayPrefix + "impure", overlayPrefix + "nlink", overlayPrefix + "uuid"}

// copier writes one layer. What it reads is hostile: it follows no link, opens nothing
// but regular files and directories, and goes from directory to directory by
// descriptors.
type copier struct {
	ctx            context.Context
	limits         Limits
	progress       *Progress // nil: nobody asks
	plain          bool      // the source is a plain directory, not one of an overlay
	entries, bytes int64
	top            int // the new layer's directory
	// links are files with several names: the first one in the new layer.
	links   map[inode]string
	cloning bool   // the filesystem may share what is in two files
	dev     uint64 // of the source, if it is plain
}

type inode struct{ dev, ino uint64 }

// copyTree copies directories, topmost first, over each other.
func copyTree(ctx context.Context, from []string, to string, m *Meta, plain bool, info *Info) error {
	return m.Progress.of(ctx, from, func() error { return copyDirs(ctx, from, to, m, plain, info) })
}

func copyDirs(ctx context.Context, from []string, to string, m *Meta, plain bool, info *Info) error {
	limits := m.Limits
	if limits.Entries <= 0 {
		limits.Entries = maxEntries
	}
	top, err := eintr.Get(func() (int, error) {
		return unix.Open(to, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: to, Err: err}
	}
	defer unix.Close(top)
	c := &copier{ctx: ctx, limits: limits, progress: m.Progress, plain: plain, top: top, cloning: true}
	for _, dir := range slices.Backward(from) {
		c.links = map[inode]string{}
		fd, err := eintr.Get(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		var st unix.Stat_t
		if err = eintr.Do(func() error { return unix.Fstat(fd, &st) }); err == nil {
			c.dev = uint64(st.Dev)
			_ = unix.Fchmod(top, 0o700) // if it fails, what follows does
			err = c.directory(fd, top, "", 0)
		}
		if err == nil {
			err = c.describe(fd, top, &st)
		}
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("copy %s: %w", dir, err)
		}
	}
	info.Entries, info.Bytes = c.entries, c.bytes
	return nil
}

// directory copies what is in a directory. rel is its path in the new layer.
func (c *copier) directory(from, to int, rel string, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("%w: directories are deeper than %d", ErrLimit, maxNested)
	}
	fd, err := eintr.Get(func() (int, error) { return unix.Openat(from, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), ".")
	defer dir.Close()
	return eachName(c.ctx, dir, func(name string) error {
		if c.entries++; c.entries > c.limits.Entries {
			return fmt.Errorf("%w: there are more than %d files", ErrLimit, c.limits.Entries)
		}
		if err := c.entry(from, to, name, rel+name, depth); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
		return nil
	})
}

func (c *copier) entry(from, to int, name, rel string, depth int) error {
	var st unix.Stat_t
	err := eintr.Do(func() error { return unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, unix.ENOENT) {
		return nil // gone meanwhile
	}
	if err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return c.subdirectory(from, to, name, rel, depth)
	}
	if err := c.clear(to, name); err != nil {
		return err
	}
	switch kind {
	case unix.S_IFREG:
		return c.regular(from, to, name, rel)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := eintr.Get(func() (int, error) { return unix.Readlinkat(from, name, buf) })
		if err == nil {
			err = unix.Symlinkat(string(buf[:n]), to, name)
		}
		if err != nil {
			return err
		}
	case unix.S_IFCHR:
		// A file that is removed. There are no other devices in a layer.
		if st.Rdev != 0 || c.plain {
			return nil
		}
		if err := unix.Mknodat(to, name, unix.S_IFCHR, 0); err != nil {
			return err
		}
		return unix.Fsetxattr(to, origin, nil, 0)
	case unix.S_IFIFO, unix.S_IFSOCK:
		if err := unix.Mknodat(to, name, kind|0o600, 0); err != nil {
			return err
		}
	default:
		return nil
	}
	return c.name(from, to, name, &st)
}

// clear removes what a layer below has put in the place of a file.
func (c *copier) clear(to int, name string) error {
	err := unix.Unlinkat(to, name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EISDIR) {
		return removeTree(to, name)
	}
	return err
}

// removeTree removes a directory of the new layer; nobody else writes there.
func removeTree(at int, name string) error {
	_ = unix.Fchmodat(at, name, 0o700, 0) // if it fails, what follows does
	fd, err := eintr.Get(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	names, err := dir.Readdirnames(-1)
	for _, n := range names {
		if err != nil {
			break
		}
		if err = unix.Unlinkat(fd, n, 0); errors.Is(err, unix.EISDIR) {
			err = removeTree(fd, n)
		}
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}

func (c *copier) subdirectory(from, to int, name, rel string, depth int) error {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	src, st, shut, err := opened(from, name, flags)
	if err != nil {
		return err
	}
	defer shut()
	var there unix.Stat_t
	if c.plain && uint64(st.Dev) != c.dev {
		return nil // another filesystem
	}
	hides := !c.plain && isOpaque(src)
	err = unix.Fstatat(to, name, &there, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		err = unix.Mkdirat(to, name, 0o700)
	case err != nil:
	case there.Mode&unix.S_IFMT != unix.S_IFDIR:
		// What is below a file, or below one that was removed, is hidden.
		hides = true
		if err = unix.Unlinkat(to, name, 0); err == nil {
			err = unix.Mkdirat(to, name, 0o700)
		}
	case hides:
		if err = removeTree(to, name); err == nil {
			err = unix.Mkdirat(to, name, 0o700)
		}
	default:
		err = unix.Fchmodat(to, name, 0o700, 0)
	}
	if err != nil {
		return err
	}
	dst, err := eintr.Get(func() (int, error) { return unix.Openat(to, name, flags, 0) })
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	if err := c.directory(src, dst, rel+"/", depth+1); err != nil {
		return err
	}
	if err := c.describe(src, dst, &st); err != nil {
		return err
	}
	if hides {
		return unix.Fsetxattr(dst, opaque, []byte("y"), 0)
	}
	return nil
}

// opened opens a name until shut, and says what it is. A daemon that is not root opens what a program inside has closed to its
// owner, which is the daemon, by giving itself the right until shut: by a descriptor, so that a link in its place is not followed.
func opened(from int, name string, flags int) (fd int, st unix.Stat_t, shut func(), err error) {
	own := os.Geteuid() != 0
	how := flags
	if own {
		how = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	}
	fd, err = eintr.Get(func() (int, error) { return unix.Openat(from, name, how, 0) })
	if err != nil {
		return -1, st, nil, err
	}
	back := func() {}
	if err = eintr.Do(func() error { return unix.Fstat(fd, &st) }); err == nil && own {
		at := fd
		defer unix.Close(at)
		right := uint32(0o400)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			right = 0o500
		}
		if st.Mode&right != right && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			back = func() { _ = unix.Chmod(fdPath(fd), st.Mode&0o7777) }
			err = unix.Chmod(fdPath(at), st.Mode&0o7777|right)
		}
		if err == nil {
			fd, err = eintr.Get(func() (int, error) { return unix.Open(fdPath(at), flags&^unix.O_NOFOLLOW, 0) })
		}
		if err != nil {
			fd = at
			back()
			return -1, st, nil, err
		}
	}
	return fd, st, func() {
		back()
		unix.Close(fd)
	}, err
}

func isOpaque(dir int) bool {
	b := make([]byte, 8)
	n, err := unix.Fgetxattr(dir, opaque, b)
	return err == nil && string(b[:n]) == "y"
}

func (c *copier) regular(from, to int, name, rel string) error {
	src, st, shut, err := opened(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer shut()
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("it changed while it was copied")
	}
	id := inode{uint64(st.Dev), st.Ino}
	if first, there := c.links[id]; there && st.Nlink > 1 {
		err := unix.Linkat(c.top, first, to, name, 0)
		if !errors.Is(err, unix.ENAMETOOLONG) && !errors.Is(err, unix.EMLINK) {
			return err
		}
	}
	// Blocks, not the size: a file may have holes.
	if c.bytes += st.Blocks * 512; c.limits.Bytes > 0 && c.bytes > c.limits.Bytes {
		return fmt.Errorf("%w: there are more than %d bytes", ErrLimit, c.limits.Bytes)
	}
	dst, err := eintr.Get(func() (int, error) {
		return unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	if err := c.content(src, dst, &st); err != nil {
		return err
	}
	if err := c.describe(src, dst, &st); err != nil {
		return err
	}
	if st.Nlink > 1 && len(rel) < unix.PathMax {
		c.links[id] = rel
	}
	return nil
}

// content copies what is in a file, without its holes.
func (c *copier) content(src, dst int, st *unix.Stat_t) error {
	size := st.Size
	if c.cloning {
		if unix.IoctlFileClone(dst, src) == nil {
			c.progress.add(st.Blocks * 512)
			return nil
		}
		c.cloning = false
	}
	for at := int64(0); at < size; {
		begin, err := unix.Seek(src, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(src, begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if end = min(end, size); begin >= end {
			break
		}
		if err := c.data(src, dst, begin, end); err != nil {
			return err
		}
		at = end
	}
	return eintr.Do(func() error { return unix.Ftruncate(dst, size) })
}

// data copies a part of a file.
func (c *copier) data(src, dst int, at, end int64) error {
	var buf []byte
	for at < end {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if buf == nil {
			in, out := at, at
			n, err := eintr.Get(func() (int, error) { return unix.CopyFileRange(src, &in, dst, &out, int(min(end-at, 64<<20)), 0) })
			switch {
			case err == nil && n == 0:
				return nil // it became shorter
			case err == nil:
				at += int64(n)
				c.progress.add(int64(n))
				continue
			case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EIO):
				return err
			}
			buf = make([]byte, 1<<20) // the kernel cannot do it here
		}
		n, err := eintr.Get(func() (int, error) { return unix.Pread(src, buf[:min(end-at, int64(len(buf)))], at) })
		if err != nil || n == 0 {
			return err
		}
		for part := buf[:n]; len(part) > 0; {
			w, err := eintr.Get(func() (int, error) { return unix.Pwrite(dst, part, at) })
			if err != nil {
				return err
			}
			part, at = part[w:], at+int64(w)
			c.progress.add(int64(w))
		}
	}
	return nil
}

// describe gives an open file or directory all but its content.
func (c *copier) describe(src, dst int, st *unix.Stat_t) error {
	if err := unix.Fchown(dst, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(dst, st.Mode&0o7777); err != nil {
		return err
	}
	err := c.attributes(
		func(b []byte) (int, error) { return unix.Flistxattr(src, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(src, name, b) },
		func(name string, v []byte) error { return unix.Fsetxattr(dst, name, v, 0) })
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(dst), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// name does the same for what is not opened.
func (c *copier) name(from, to int, name string, st *unix.Stat_t) error {
	if err := unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	src, dst := fdPath(from)+"/"+name, fdPath(to)+"/"+name
	err := c.attributes(
		func(b []byte) (int, error) { return unix.Llistxattr(src, b) },
		func(name string, b []byte) (int, error) { return unix.Lgetxattr(src, name, b) },
		func(name string, v []byte) error { return unix.Lsetxattr(dst, name, v, 0) })
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(to, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// attributes copies extended attributes. One that the filesystem does not take is left
// out, unless it is one of an overlay's: without that, other files would be seen.
func (c *copier) attributes(list func([]byte) (int, error), get func(string, []byte) (int, error), set func(string, []byte) error) error {
	// Most files have none.
	names := make([]byte, 256)
	n, err := eintr.Get(func() (int, error) { return list(names) })
	if errors.Is(err, unix.ERANGE) {
		names = make([]byte, 64<<10) // the kernel's limit
		n, err = eintr.Get(func() (int, error) { return list(names) })
	}
	if err != nil {
		if errors.Is(err, unix.ENOTSUP) {
			return nil
		}
		return err
	}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		ours := strings.HasPrefix(name, overlayPrefix)
		if name == "" || ours && (c.plain || slices.Contains(stale, name)) || c.plain && strings.HasPrefix(name, "trusted.") {
			continue
		}
		value := make([]byte, 64<<10) // the kernel's limit
		n, err := eintr.Get(func() (int, error) { return get(name, value) })
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err == nil {
			err = set(name, value[:n])
		}
		if err != nil && (ours || !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM)) {
			return fmt.Errorf("attribute %.100q: %w", name, err)
		}
	}
	return nil
}
