package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

const (
	// ids is how many ids there are inside, and nobody what another becomes.
	ids, nobody = 1 << 16, 65534
	// maxAttr bounds the attributes of a file that is copied, in bytes.
	maxAttr  = 64 << 10
	attrUser = "user."
	attrMine = "user.overlay."
	attrTar  = "SCHILY.xattr."
)

func (u *unpacker) owner(h *tar.Header) (uid, gid int) {
	uid, gid = h.Uid, h.Gid
	if beyond(uid) || beyond(gid) {
		u.done.Left.Owners++
	}
	if beyond(uid) {
		uid = nobody
	}
	if beyond(gid) {
		gid = nobody
	}
	return uid, gid
}

func beyond(id int) bool { return id < 0 || id >= ids }

// describe gives an open file or directory all but its content.
func (u *unpacker) describe(fd int, h *tar.Header, mode uint32) error {
	if u.root { // else all that is in a sandbox has one id
		uid, gid := u.owner(h)
		if err := eintr.Do(func() error { return unix.Fchown(fd, uid, gid) }); err != nil {
			return err
		}
	}
	if beyond(h.Uid) { // nobody asked for a program that runs as nobody
		mode &^= unix.S_ISUID
	}
	if beyond(h.Gid) {
		mode &^= unix.S_ISGID
	}
	if err := eintr.Do(func() error { return unix.Fchmod(fd, mode) }); err != nil {
		return err
	}
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, attrTar)
		switch {
		case !ok:
		case name == "security.capability":
			u.done.Left.Capabilities++
		case !strings.HasPrefix(name, attrUser) || strings.HasPrefix(name, attrMine):
			u.done.Left.Attributes++
		default:
			if err := u.attribute(fd, name, []byte(value)); err != nil {
				return err
			}
		}
	}
	return fdTime(fd, h.ModTime)
}

// attribute sets an attribute. A filesystem has little room for them, or none.
func (u *unpacker) attribute(fd int, name string, value []byte) error {
	err := eintr.Do(func() error { return unix.Fsetxattr(fd, name, value, 0) })
	for _, e := range []error{unix.ENOTSUP, unix.ENOSPC, unix.E2BIG, unix.ERANGE, unix.EINVAL, unix.EPERM} {
		if errors.Is(err, e) {
			u.done.Left.Attributes++
			return nil
		}
	}
	return err
}

// timeOf is when a file was changed; false: it cannot have been then.
func timeOf(at time.Time) ([]unix.Timespec, bool) {
	if s := at.Unix(); at.IsZero() || s < 0 || s > 1<<33 {
		return nil, false
	}
	ts := unix.Timespec{Sec: at.Unix(), Nsec: int64(at.Nanosecond())}
	return []unix.Timespec{ts, ts}, true
}

func setTime(dir int, name string, at time.Time) error {
	ts, ok := timeOf(at)
	if !ok {
		return nil
	}
	return eintr.Do(func() error { return unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW) })
}

func fdTime(fd int, at time.Time) error {
	ts, ok := timeOf(at)
	if !ok {
		return nil
	}
	return eintr.Do(func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), ts, 0) })
}

// like gives an open file what another one has, but for content and time.
func (u *unpacker) like(from, to int) (st unix.Stat_t, err error) {
	if err := eintr.Do(func() error { return unix.Fstat(from, &st) }); err != nil {
		return st, err
	}
	if u.root {
		if err := eintr.Do(func() error { return unix.Fchown(to, int(st.Uid), int(st.Gid)) }); err != nil {
			return st, err
		}
	}
	if err := eintr.Do(func() error { return unix.Fchmod(to, st.Mode&0o7777) }); err != nil {
		return st, err
	}
	return st, eachAttribute(from, func(name string, value []byte) error { return u.attribute(to, name, value) })
}

// eachAttribute goes over the attributes of an open file that layers have.
func eachAttribute(fd int, do func(name string, value []byte) error) error {
	n, err := eintr.Get(func() (int, error) { return unix.Flistxattr(fd, nil) })
	if n == 0 || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	list := make([]byte, maxAttr)
	if err == nil {
		n, err = eintr.Get(func() (int, error) { return unix.Flistxattr(fd, list) })
	}
	if err != nil {
		return err
	}
	value := make([]byte, maxAttr)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, attrUser) || strings.HasPrefix(name, attrMine) {
			continue
		}
		k, err := eintr.Get(func() (int, error) { return unix.Fgetxattr(fd, name, value) })
		if err == nil {
			err = do(name, value[:k])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyUp has the layer have a file or link of a layer below, at a real path.
func (u *unpacker) copyUp(n *node, at string) error {
	from, err := u.t.dir(n.layer, parent(at))
	if err != nil {
		return err
	}
	name := path.Base(at)
	if n.is(unix.S_IFLNK) {
		to, err := u.t.readlink(n, parent(at), name)
		if err != nil {
			return err
		}
		return u.symlink(at, &tar.Header{Linkname: to, Uid: int(n.st.Uid), Gid: int(n.st.Gid), ModTime: time.Unix(n.st.Mtim.Unix())})
	}
	if !n.is(unix.S_IFREG) {
		return bad("it is a link to what is no file")
	}
	if err := u.take(n.st.Size); err != nil {
		return err
	}
	in, err := eintr.Get(func() (int, error) { return unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) })
	if err != nil {
		return err
	}
	defer unix.Close(in)
	out := -1
	err = u.put(at, func(dir int, name string) (err error) {
		out, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(out)
	if err := u.write(out, fdReader(in), n.st.Size); err != nil {
		return err
	}
	if _, err := u.like(in, out); err != nil {
		return err
	}
	return fdTime(out, time.Unix(n.st.Mtim.Unix()))
}

type fdReader int

func (fd fdReader) Read(b []byte) (int, error) {
	n, err := eintr.Get(func() (int, error) { return unix.Read(int(fd), b) })
	if n == 0 && err == nil {
		return 0, errors.New("the file of the layer below is shorter than it was")
	}
	return n, err
}
