package files

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

func openHandle(path string, follow bool) (*handle, error) {
	file, err := openThrough(path, handleFlags(follow), 0)
	if err != nil {
		return nil, err
	}
	return &handle{file: file}, nil
}

func handleFlags(follow bool) int {
	if follow {
		return unix.O_PATH
	}
	return unix.O_PATH | unix.O_NOFOLLOW
}

// openThrough opens the path through all links but the magic ones.
func openThrough(path string, flags int, mode uint32) (*os.File, error) {
	fd, err := openat2(path, flags|unix.O_CLOEXEC, mode)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		// A kernel before 5.6, or a filter of system calls that is older.
		fd, err = walkTo(path, flags|unix.O_CLOEXEC, mode)
	case errors.Is(err, unix.ELOOP): // not of the last link: with O_NOFOLLOW there is O_PATH
		plain := flags&unix.O_NOFOLLOW | unix.O_PATH | unix.O_CLOEXEC
		err = whichLoop(eintr.Get(func() (int, error) { return unix.Open(path, plain, 0) }))
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// whichLoop parts what ELOOP says of a path when magic links are refused: the kernel has one
// word for them and for a loop. plain is the path opened with them, as O_PATH, which has no
// effects.
func whichLoop(plain int, err error) error {
	if err == nil {
		_ = unix.Close(plain)
	}
	if errors.Is(err, unix.ELOOP) {
		return err
	}
	return errMagicLink
}

func openat2(path string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	return eintr.Get(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, &how) })
}

// self is a path that leads to the handle's file and to no other.
func (h *handle) self() string { return fdPath(int(h.file.Fd())) }

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// at is a path of an entry of the directory. Its last name may be a link: use
// it with what follows none.
func (h *handle) at(name string) string { return h.self() + "/" + name }

// link is what a link says.
func (h *handle) link() (text string, err error) {
	buf := make([]byte, unix.PathMax)
	err = control(h.file, func(fd int) error {
		n, err := eintr.Get(func() (int, error) { return unix.Readlinkat(fd, "", buf) })
		text = string(buf[:max(n, 0)])
		return err
	})
	return text, err
}

// real is the name that the file has now.
func (h *handle) real() (string, error) {
	name, err := os.Readlink(h.self())
	if err == nil && !strings.HasPrefix(name, "/") {
		err = fmt.Errorf("%.100q is no path", name)
	}
	if err == nil && h.root != nil {
		name, err = h.root.cut(name)
	}
	return name, err
}

// pseudoTypes are file systems whose files the kernel makes up when they are
// read: their sizes say nothing, some of them wait, and some have no end.
var pseudoTypes = [...]uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
	unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
	unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.NSFS_MAGIC, unix.BINFMTFS_MAGIC, unix.RDTGROUP_SUPER_MAGIC,
	0x62656570, // configfs
	0x65735543, // fusectl
}

func (h *handle) isPseudo() (bool, error) { return isPseudo(int(h.file.Fd())) }

func isPseudo(fd int) (bool, error) {
	var st unix.Statfs_t
	if err := eintr.Do(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return false, err
	}
	for _, t := range pseudoTypes {
		if uint32(st.Type) == t {
			return true, nil
		}
	}
	return false, nil
}
