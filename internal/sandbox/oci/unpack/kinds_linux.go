package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// What each kind of entry becomes: files, directories and links.

func (u *unpacker) regular(at string, h *tar.Header) error {
	if err := u.take(h.Size); err != nil {
		return err
	}
	fd := -1
	err := u.put(at, func(dir int, name string) (err error) {
		fd, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := u.write(fd, u.in, h.Size); err != nil {
		return err
	}
	return u.describe(fd, h, uint32(h.Mode)&0o7777)
}

// take counts the bytes of a file.
func (u *unpacker) take(size int64) error {
	if size < 0 || u.o.Bytes > 0 && size > u.o.Bytes-u.done.Bytes {
		return fmt.Errorf("%w: %d", ErrFull, u.o.Bytes)
	}
	u.done.Bytes += size
	return nil
}

var zeros [block]byte

// write copies a file; a block of zeros becomes a hole.
func (u *unpacker) write(fd int, in io.Reader, size int64) error {
	hole := false
	for at := int64(0); at < size; {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		b := u.buf[:min(int64(len(u.buf)), size-at)]
		if _, err := io.ReadFull(in, b); err != nil {
			return fmt.Errorf("after %d bytes of %d: %w", at, size, err)
		}
		at += int64(len(b))
		if hole = len(b) == block && string(b) == string(zeros[:]); hole {
			if _, err := unix.Seek(fd, int64(len(b)), unix.SEEK_CUR); err != nil {
				return err
			}
			continue
		}
		if err := u.ask(int64(len(b))); err != nil {
			return err
		}
		for len(b) > 0 {
			n, err := eintr.Get(func() (int, error) { return unix.Write(fd, b) })
			if err != nil {
				return err
			}
			b = b[n:]
		}
	}
	if hole {
		return eintr.Do(func() error { return unix.Ftruncate(fd, size) })
	}
	return nil
}

func (u *unpacker) directory(at string, h *tar.Header) error {
	mode := uint32(h.Mode) & 0o7777
	if at != "" {
		if err := u.makeDir(at); err != nil {
			return err
		}
	}
	fd, err := u.t.dir(own, at)
	if err != nil {
		return err
	}
	if _, known := u.dirs[at]; !known {
		if err := u.remember(at); err != nil {
			return err
		}
	}
	u.dirs[at] = dirMeta{mode, h.ModTime}
	if !u.root {
		mode |= 0o700 // until the end
	}
	return u.describe(fd, h, mode)
}

// makeDir has the layer have a directory at a path, whatever was there.
func (u *unpacker) makeDir(at string) error {
	n, err := u.t.stat(own, parent(at), path.Base(at))
	if err == nil && n.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	replaced := err == nil
	below, err := u.t.stack(at)
	if err != nil {
		return err
	}
	err = u.put(at, func(dir int, name string) error { return unix.Mkdirat(dir, name, 0o755) })
	if err != nil || !replaced || len(below) == 0 {
		return err
	}
	if err := u.remember(at); err != nil {
		return err
	}
	return u.t.cut(at) // what the layer had here has hidden the directory below
}

// ensure has the layer have a directory, and returns its descriptor. One that no entry has
// described is as the layers below say.
func (u *unpacker) ensure(at string) (int, error) {
	fd, err := u.t.dir(own, at)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	up, err := u.ensure(parent(at))
	if err != nil {
		return -1, err
	}
	name := path.Base(at)
	if err := u.count(at); err != nil {
		return -1, err
	}
	if err := eintr.Do(func() error { return unix.Mkdirat(up, name, 0o755) }); err != nil {
		return -1, err
	}
	if fd, err = u.t.dir(own, at); err != nil {
		return -1, err
	}
	below, err := u.t.stack(at)
	if err != nil {
		return -1, err
	}
	if len(below) == 0 {
		return fd, eintr.Do(func() error { return unix.Fchmod(fd, 0o755) }) // whatever the umask is
	}
	from, err := u.t.dir(below[0], at)
	if err != nil {
		return -1, err
	}
	st, err := u.like(from, fd)
	if err == nil {
		err = u.remember(at)
	}
	if err == nil && !u.root {
		err = eintr.Do(func() error { return unix.Fchmod(fd, st.Mode&0o7777|0o700) })
	}
	u.dirs[at] = dirMeta{st.Mode & 0o7777, time.Unix(st.Mtim.Unix())}
	return fd, err
}

func (u *unpacker) symlink(at string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxPath || strings.IndexByte(h.Linkname, 0) >= 0 {
		return bad("it is a link to %.80q", h.Linkname)
	}
	err := u.put(at, func(dir int, name string) error { return unix.Symlinkat(h.Linkname, dir, name) })
	if err != nil {
		return err
	}
	dir, err := u.t.dir(own, parent(at))
	if err != nil {
		return err
	}
	name := path.Base(at)
	if u.root {
		uid, gid := u.owner(h)
		if err := eintr.Do(func() error { return unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
			return err
		}
	}
	return setTime(dir, name, h.ModTime)
}

func (u *unpacker) hardLink(at string, h *tar.Header) error {
	first, err := clean(h.Linkname)
	if err != nil {
		return err
	}
	if first == "" {
		return bad("it is a link to the root")
	}
	dir, err := u.t.walk(parent(first))
	if err != nil {
		return err
	}
	first = join(dir, path.Base(first))
	if first == at {
		return bad("it is a link to itself")
	}
	n, err := u.t.find(dir, path.Base(first))
	switch {
	case err != nil:
		return err
	case !n.there:
		return bad("it is a link to %.200q, which is not there", h.Linkname)
	case n.is(unix.S_IFDIR):
		return bad("it is a link to %.200q, which is a directory", h.Linkname)
	case n.layer != own:
		if err := u.copyUp(&n, first); err != nil {
			return err
		}
	}
	if strings.HasPrefix(first, at+"/") {
		return bad("it is a link to what is in it")
	}
	return u.put(at, func(to int, name string) error {
		from, err := u.t.dir(own, dir)
		if err != nil {
			return err
		}
		return unix.Linkat(from, path.Base(first), to, name, 0)
	})
}
