package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// notice is what a hidden file says.
const notice = "# hidden by tend: nothing of this file is shown to commands of the healer\n"

// scratch are what a command has for itself, if it may not write everywhere. In /run are
// the sockets of what else runs on the machine; a read-only mount keeps nobody from them.
var scratch = []string{"/tmp", "/var/tmp", "/dev/shm", "/run"}

// arrange makes the mounts that the rules ask for.
func arrange(r Rules) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The processes that it shows are those of the command's namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("a /proc of its own: %w", err)
	}
	if len(r.Write) > 0 {
		if err := readOnly(r.Write); err != nil {
			return err
		}
	}
	for _, path := range r.Private {
		if err := private(path); err != nil {
			r.Keep = append(r.Keep, path)
		}
	}
	for _, path := range r.Keep {
		if err := keep(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return cover(r.Hide)
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

// readOnly makes everything read-only but some directories.
func readOnly(write []string) error {
	fds := make([]int, len(write))
	for i, path := range write {
		fd, dir, err := open(path)
		if err != nil {
			return err
		}
		if fd < 0 || !dir {
			return fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		fds[i] = fd
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make all read-only: %w", err)
	}
	for _, dir := range scratch {
		if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
			continue
		}
		if err := unix.Mount("tend-scratch", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1g,mode=1777"); err != nil {
			return fmt.Errorf("a %s of its own: %w", dir, err)
		}
	}
	for i, path := range write {
		for _, dir := range scratch { // it was in there
			if strings.HasPrefix(path, dir+"/") {
				if err := os.MkdirAll(path, 0o755); err != nil {
					return err
				}
			}
		}
		if err := unix.Mount(fdPath(fds[i]), path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		unix.Close(fds[i])
		if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("%s: make it writable: %w", path, err)
		}
	}
	return nil
}

// keep makes a path read-only.
func keep(path string) error {
	fd, _, err := open(path)
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Mount(fdPath(fd), fdPath(fd), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// small mounts a filesystem on /tmp for a moment, and unmounts it: what is mounted
// from it stays.
func small(use func(at string) error) error {
	const at = "/tmp"
	if err := unix.Mount("tend-small", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256m,mode=755"); err != nil {
		return fmt.Errorf("a small filesystem: %w", err)
	}
	err := use(at)
	return errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
}

// private lays a directory of the command's own over another.
func private(path string) error {
	fd, dir, err := open(path)
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if !dir {
		return fs.ErrInvalid
	}
	return small(func(at string) error {
		upper, work := filepath.Join(at, "upper"), filepath.Join(at, "work")
		if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
			return err
		}
		options := "lowerdir=" + fdPath(fd) + ",upperdir=" + upper + ",workdir=" + work
		if err := unix.Mount("tend-private", fdPath(fd), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err == nil {
			return nil
		}
		return unix.Mount("tend-private", fdPath(fd), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options+",userxattr")
	})
}

// cover puts something else in place of each path. All are opened first: what stands in
// for them is mounted on /tmp for a moment, where some of them may be.
func cover(hide []string) error {
	type target struct {
		fd  int
		dir bool
	}
	var all []target
	for _, path := range hide {
		fd, dir, err := open(path)
		if err != nil {
			return err
		}
		if fd >= 0 {
			all = append(all, target{fd, dir})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return small(func(at string) error {
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
				return fmt.Errorf("hide a file: %w", err)
			}
			unix.Close(t.fd)
		}
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "size=256m,mode=755"); err != nil {
			return fmt.Errorf("make it read-only: %w", err)
		}
		return nil
	})
}
