package files

import (
	"crypto/rand"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// maxNested is how deep removeTree goes at once. It has one descriptor a level.
const maxNested = 100

// removeTree removes what a sandbox calls name in a directory, with all that is in it. It
// follows no link and enters no other file system: what is mounted inside a sandbox
// is not its own. What is nested deeper than a path can say is removed, too.
func (a *Actor) removeTree(dir *handle, name string) error {
	return control(dir.file, func(fd int) error {
		err := eintr.Do(func() error { return unix.Unlinkat(fd, name, 0) })
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			return ignoreGone(err)
		}
		top, derr := openBelow(fd, name)
		if errors.Is(derr, unix.ENOTDIR) || errors.Is(derr, unix.ELOOP) {
			return err // it is none: the first error says why it stays
		}
		if derr != nil {
			return ignoreGone(derr)
		}
		defer unix.Close(top)
		if err := a.empty(top, top, 0); err != nil {
			return err
		}
		return ignoreGone(eintr.Do(func() error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) }))
	})
}

func openBelow(dir int, name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case errors.Is(err, unix.EXDEV):
			return fd, unix.EBUSY // as the kernel says of a place where something is mounted
		default:
			return fd, err
		}
	}
}

// empty removes all that is in the directory. What is nested deeper than maxNested is
// moved up to top first.
func (a *Actor) empty(top, dir, depth int) error {
	if a.root.isForeign(dir) {
		if err := a.lower(); err != nil {
			return err
		}
	}
	for {
		names, err := namesOf(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := a.Err(); err != nil {
				return err
			}
			if err := a.emptyOne(top, dir, name, depth); err != nil {
				return err
			}
		}
	}
}

func (a *Actor) emptyOne(top, dir int, name string, depth int) error {
	err := eintr.Do(func() error { return unix.Unlinkat(dir, name, 0) })
	if !errors.Is(err, unix.EISDIR) {
		return ignoreGone(err)
	}
	if err = eintr.Do(func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) }); !errors.Is(err, unix.ENOTEMPTY) {
		return ignoreGone(err)
	}
	if depth == maxNested {
		return ignoreGone(eintr.Do(func() error { return unix.Renameat(dir, name, top, ".removed-"+rand.Text()) }))
	}
	below, err := openBelow(dir, name)
	if err != nil {
		return ignoreGone(err)
	}
	err = a.empty(top, below, depth+1)
	_ = unix.Close(below)
	if err != nil {
		return err
	}
	return ignoreGone(eintr.Do(func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) }))
}

// namesOf returns some of the names in a directory, from its start; none if it is empty.
func namesOf(dir int) ([]string, error) {
	// A descriptor of its own, for each has its own place in the directory.
	fd, err := eintr.Get(func() (int, error) { return unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), ".")
	defer file.Close()
	names, err := file.Readdirnames(1024)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
