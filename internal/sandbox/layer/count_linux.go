package layer

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// counter adds up a tree by descriptors: names in it are somebody else's.
type counter struct {
	ctx            context.Context
	entries, bytes int64
}

// countTree counts the entries of a directory, and the bytes that their files take on the
// disk. What lies deeper than a copy may have is left out.
func countTree(ctx context.Context, dir string) (entries, bytes int64, err error) {
	fd, err := eintr.Get(func() (int, error) {
		return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	})
	if err != nil {
		return 0, 0, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	c := &counter{ctx: ctx}
	err = c.directory(os.NewFile(uintptr(fd), dir), 0)
	return c.entries, c.bytes, err
}

// directory closes dir.
func (c *counter) directory(dir *os.File, depth int) error {
	defer dir.Close()
	return eachName(c.ctx, dir, func(name string) error { return c.entry(int(dir.Fd()), name, depth) })
}

// eachName calls f for all names in a directory, some at a time, until ctx ends.
func eachName(ctx context.Context, dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(name); err != nil {
				return err
			}
		}
	}
}

func (c *counter) entry(dir int, name string, depth int) error {
	var st unix.Stat_t
	if err := eintr.Do(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return err
	}
	c.entries++
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		c.bytes += st.Blocks * 512 / int64(st.Nlink) // each name has its share
	case unix.S_IFDIR:
		if depth >= maxNested {
			return nil
		}
		fd, err := eintr.Get(func() (int, error) {
			return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		})
		if errors.Is(err, unix.EACCES) { // closed to a daemon that is not root
			return nil
		}
		if err != nil {
			return err
		}
		return c.directory(os.NewFile(uintptr(fd), name), depth+1)
	}
	return nil
}

// openTree gives the owner all rights over the directories of a tree in which nobody else writes, as deep as a copy may have them.
func openTree(dir, name string) error {
	at, err := eintr.Get(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(at)
	return openBelow(at, name, 0)
}

func openBelow(at int, name string, depth int) error {
	var st unix.Stat_t
	err := eintr.Do(func() error { return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || depth > maxNested {
		return err
	}
	if st.Mode&0o700 != 0o700 {
		if err := unix.Fchmodat(at, name, 0o700, 0); err != nil {
			return err
		}
	}
	fd, err := eintr.Get(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	})
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return eachName(context.Background(), f, func(name string) error { return openBelow(fd, name, depth+1) })
}
