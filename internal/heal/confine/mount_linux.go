package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/overlay"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// notice is what a hidden file says.
const notice = "# hidden by tend: nothing of this file is shown to commands of the healer\n"

// devices are all that there are.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// arrange makes the mounts that the rules ask for. It returns a descriptor of the directory
// that takes what is changed.
func arrange(r Rules) (upper int, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fmt.Errorf("make mounts private: %w", err)
	}
	// The processes that it shows are those of the command's namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return -1, fmt.Errorf("a /proc of its own: %w", err)
	}
	root, dir, err := open(r.Root)
	if err != nil {
		return -1, err
	}
	if root < 0 || !dir {
		return -1, fmt.Errorf("%s: %w", r.Root, fs.ErrNotExist)
	}
	defer unix.Close(root)
	bare := -1 // a tree of the root alone, which can still be written
	if r.inner != nil && r.inner.bare {
		if bare, err = unix.OpenTree(unix.AT_FDCWD, r.Root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
			return -1, fmt.Errorf("%s: %w", r.Root, err)
		}
		defer unix.Close(bare)
	}
	shown, err := openAll(r.Show)
	if err != nil {
		return -1, err
	}
	paths, err := mountsBelow(r.Root)
	if err != nil {
		return -1, err
	}
	inner, err := openAll(paths)
	if err != nil {
		return -1, err
	}
	paths = nil
	for _, name := range devices {
		paths = append(paths, "/dev/"+name)
	}
	dev, err := openAll(paths)
	if err != nil {
		return -1, err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return -1, fmt.Errorf("make all read-only: %w", err)
	}
	if err := empty(&r); err != nil {
		return -1, err
	}
	for _, t := range append(dev, shown...) {
		if err := t.bind(); err != nil {
			return -1, err
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, "/dev/"+name); err != nil {
			return -1, err
		}
	}
	if err := os.MkdirAll(r.Root, 0o755); err != nil { // it is in what is empty now
		return -1, err
	}
	if bare >= 0 {
		upper, err = -1, unix.MoveMount(bare, "", unix.AT_FDCWD, r.Root, unix.MOVE_MOUNT_F_EMPTY_PATH)
	} else {
		upper, err = lay(root, r.Root, r.size(1<<30), r.inner != nil)
	}
	if err != nil {
		return -1, fmt.Errorf("%s: %w", r.Root, err)
	}
	for _, t := range inner {
		if err := t.bind(); err != nil {
			return -1, err
		}
	}
	unread, err := unreadable()
	if err != nil {
		return -1, err
	}
	loose, err := atTop()
	if err != nil {
		return -1, err
	}
	return upper, cover(slices.Concat(closed, loose, unread, r.Hide))
}

// closed is what in /proc and /sys tells of the whole machine, as sandboxes close it; the rest is
// read-only.
var closed = append([]string{
	"/proc/sysrq-trigger", "/sys/firmware", "/sys/fs/bpf", "/sys/fs/pstore", "/sys/kernel/debug", "/sys/kernel/tracing",
}, procfs.OfTheMachine...)

// atTop is what stands beside the directories at the top, such as a file of swap: it is neither a
// program nor a library. Links lead to what has a rule of its own.
func atTop() (all []string, err error) {
	top, err := os.ReadDir("/")
	for _, e := range top {
		if !e.IsDir() && e.Type()&fs.ModeSymlink == 0 {
			all = append(all, "/"+e.Name())
		}
	}
	return all, err
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// open opens a path to mount something there, or returns -1 if it is not there.
func open(path string) (fd int, dir bool, err error) {
	fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) // of a link: what it leads to
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return -1, false, nil
	}
	if err != nil {
		return -1, false, fmt.Errorf("%s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, false, fmt.Errorf("%s: %w", path, err)
	}
	return fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// target is something that is open, and its path.
type target struct {
	fd   int
	dir  bool
	path string
}

func openAll(paths []string) (all []target, err error) {
	for _, path := range paths {
		fd, dir, err := open(path)
		if errors.Is(err, unix.EACCES) {
			continue // the command could not see it anyway
		}
		if err != nil {
			return nil, err
		}
		if fd >= 0 {
			all = append(all, target{fd, dir, path})
		}
	}
	return all, nil
}

// bind mounts it at its path, which is made if it is not there any more.
func (t target) bind() error {
	defer unix.Close(t.fd)
	var err error
	if _, err = os.Lstat(t.path); errors.Is(err, fs.ErrNotExist) {
		if t.dir {
			err = os.MkdirAll(t.path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(t.path), 0o755); err == nil {
			err = os.WriteFile(t.path, nil, 0o644)
		}
	}
	if err == nil {
		err = unix.Mount(fdPath(t.fd), t.path, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("show %s: %w", t.path, err)
	}
	return nil
}

// empty lays a directory of the command's own over all that is not public.
func empty(r *Rules) error {
	top, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range top {
		if !e.IsDir() || slices.Contains(public, e.Name()) {
			continue
		}
		options := "size=" + r.size(64<<20) + ",nr_inodes=64k,mode=755"
		if e.Name() == "tmp" {
			options = "size=" + r.size(1<<30) + ",nr_inodes=256k,mode=1777"
		}
		if err := unix.Mount("tend-empty", "/"+e.Name(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("an empty /%s: %w", e.Name(), err)
		}
	}
	for _, dir := range []string{"/var/tmp", "/dev/shm"} {
		if _, err := os.Lstat(filepath.Dir(dir)); err != nil {
			continue
		}
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777|fs.ModeSticky)); err != nil {
			return err
		}
	}
	return nil
}

// unreadable are the settings of the machine that not everybody may read: the daemon may be root.
func unreadable() (all []string, err error) {
	for _, dir := range []string{"/etc", "/usr/local/etc", "/usr/etc"} {
		if all, err = unreadableIn(dir, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func unreadableIn(dir string, all []string) ([]string, error) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // nor can the command read it
		}
		info, err := d.Info()
		switch {
		case err != nil || info.Mode()&fs.ModeSymlink != 0:
		case d.IsDir() && info.Mode()&0o005 != 0o005:
			all = append(all, path)
			return fs.SkipDir
		case !d.IsDir() && info.Mode()&0o004 == 0:
			all = append(all, path)
		}
		if len(all) > MaxPaths {
			return fmt.Errorf("more than %d files of %s are not for everybody", MaxPaths, dir)
		}
		return nil
	})
	return all, err
}

// small mounts a filesystem on /tmp for a moment, and unmounts it: what is mounted
// from it stays.
func small(size string, use func(at string) error) error {
	const at = "/tmp"
	if err := unix.Mount("tend-small", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size="+size+",nr_inodes=256k,mode=755"); err != nil {
		return fmt.Errorf("a small filesystem: %w", err)
	}
	err := use(at)
	return errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
}

// trusted is an attribute as only root of the machine may set.
const trusted = "trusted.tend"

// lay lays a directory of the command's own over the root, in memory of a size, and returns it. alike: it
// belongs to whom the root belongs, and not to this process.
func lay(root int, path, size string, alike bool) (upper int, err error) {
	over, _, err := open(path) // before something is mounted on /tmp, where it may be
	if err != nil {
		return -1, err
	}
	defer unix.Close(over)
	err = small(size, func(at string) error {
		top, work := filepath.Join(at, "upper"), filepath.Join(at, "work")
		if err := errors.Join(os.Mkdir(top, 0o755), os.Mkdir(work, 0o755)); err != nil {
			return err
		}
		if alike {
			var st unix.Stat_t
			if err := unix.Fstat(root, &st); err != nil {
				return err
			}
			if err := errors.Join(os.Chown(top, int(st.Uid), int(st.Gid)), unix.Chmod(top, st.Mode&0o7777)); err != nil {
				return err
			}
		}
		if upper, _, err = open(top); err != nil {
			return err
		}
		// In a user namespace the marks of overlays are others. The kernel mounts one without
		// them there, too, in which no directory can be removed.
		err := unix.Setxattr(top, trusted, nil, 0)
		spec := overlay.Spec{Lower: []string{fdPath(root)}, Upper: top, Work: work, User: errors.Is(err, unix.EPERM)}
		if err == nil {
			err = unix.Removexattr(top, trusted)
		}
		if err == nil || spec.User {
			err = unix.Mount("tend-project", fdPath(over), "overlay", unix.MS_NOSUID|unix.MS_NODEV, spec.Options())
		}
		if err != nil {
			return fmt.Errorf("lay memory over %s: %w", path, err)
		}
		return nil
	})
	return upper, err
}

// mountsBelow are the mounts in a directory, which no overlay shows.
func mountsBelow(dir string) (all []string, err error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			if path := procfs.Unescape(f[4]); strings.HasPrefix(path, dir+"/") && !slices.Contains(all, path) {
				all = append(all, path)
			}
		}
	}
	return all, nil
}

// cover puts something else in place of each path. All are opened first: what stands in
// for them is mounted on /tmp for a moment, where some of them may be.
func cover(hide []string) error {
	all, err := openAll(hide)
	if err != nil || len(all) == 0 {
		return err
	}
	return small("1m", func(at string) error {
		file, dir := filepath.Join(at, "file"), filepath.Join(at, "dir")
		if err := errors.Join(os.WriteFile(file, []byte(notice), 0o444), os.Mkdir(dir, 0o555)); err != nil {
			return err
		}
		for _, t := range all {
			from := file
			if t.dir {
				from = dir
			}
			if err := unix.Mount(from, fdPath(t.fd), "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("hide %s: %w", t.path, err)
			}
			unix.Close(t.fd)
		}
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("make it read-only: %w", err)
		}
		return nil
	})
}
