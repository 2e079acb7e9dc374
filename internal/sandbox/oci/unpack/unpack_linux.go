package unpack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

const (
	whiteout = ".wh."
	special  = ".wh..wh."
	opaque   = ".wh..wh..opq"

	// maxNames bounds the names that are remembered until the end of a layer, in bytes.
	maxNames = 128 << 20
	// block is what becomes a hole if it is zero, and how much is read at a time.
	block = 64 << 10
)

// unpacker unpacks one layer.
type unpacker struct {
	ctx  context.Context
	o    Options
	t    *tree
	in   *tar.Reader
	done Result
	root bool // the daemon may give files to others
	buf  []byte
	// unasked is how many bytes were written since Room was asked.
	unasked int64

	// Of the end: what is hidden of the layers below, and directories, which are changed by
	// what comes into them.
	gone  []string // removed
	shut  []string // nothing of the layers below is in them
	dirs  map[string]dirMeta
	names int // bytes of the three
}

type dirMeta struct {
	mode uint32
	time time.Time
}

// Layer writes what an uncompressed tar says to an empty directory.
func Layer(ctx context.Context, r io.Reader, dir string, o Options) (Result, error) {
	if o.Entries <= 0 {
		o.Entries = MaxEntries
	}
	t, err := openTree(dir, o.Below)
	if err != nil {
		return Result{}, err
	}
	defer t.close()
	u := &unpacker{ctx: ctx, o: o, t: t, in: tar.NewReader(r), root: os.Geteuid() == 0, buf: make([]byte, block), dirs: map[string]dirMeta{}}
	for {
		if err := ctx.Err(); err != nil {
			return u.done, err
		}
		h, err := u.in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u.done, fmt.Errorf("after %d entries: %w", u.done.Entries, err)
		}
		if err := u.count(h.Name); err != nil {
			return u.done, err
		}
		if err := u.entry(h); err != nil {
			return u.done, &EntryError{h.Name, err}
		}
	}
	return u.done, u.finish()
}

// count counts an entry, or a directory that a path needs.
func (u *unpacker) count(name string) error {
	if u.done.Entries++; u.done.Entries > u.o.Entries {
		return &EntryError{name, fmt.Errorf("%w: there are more than %d entries; an image may have %d in all its layers",
			ErrLimit, u.o.Entries, MaxEntries)}
	}
	return u.ask(4 << 10)
}

// ask counts bytes that are written, and asks for the room that is left.
func (u *unpacker) ask(n int64) error {
	if u.unasked += n; u.unasked < leastRoom/2 || u.o.Room == nil {
		return nil
	}
	u.unasked = 0
	if room := u.o.Room(); room > 0 && room < leastRoom {
		return fmt.Errorf("%w: the disk is nearly full", ErrLimit)
	}
	return nil
}

// clean makes a path of the name of an entry.
func clean(name string) (string, error) {
	if len(name) > maxPath {
		return "", bad("the name has %d bytes; %d are possible", len(name), maxPath)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", bad("the name has a NUL byte")
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return "", bad("the name leads up by '..'")
		case len(part) > 255:
			return "", bad("a part of the name has %d bytes; 255 are possible", len(part))
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > maxDepth {
		return "", bad("directories are deeper than %d", maxDepth)
	}
	return strings.Join(parts, "/"), nil
}

func (u *unpacker) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return bad("the root is a directory and nothing else")
		}
		return u.directory("", h)
	}
	for part := range strings.SplitSeq(parent(name), "/") {
		if strings.HasPrefix(part, whiteout) {
			return nil
		}
	}
	base := path.Base(name)
	switch {
	case base == opaque:
		return u.later(&u.shut, parent(name))
	case strings.HasPrefix(base, special):
		return nil
	case strings.HasPrefix(base, whiteout):
		base = strings.TrimPrefix(base, whiteout)
		if base == "" || base == "." || base == ".." {
			return bad("it removes %q", base)
		}
		return u.later(&u.gone, join(parent(name), base))
	}
	dir, err := u.t.walk(parent(name))
	if err != nil {
		return err
	}
	at := join(dir, base)
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(at, h)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return u.regular(at, h)
	case tar.TypeSymlink:
		return u.symlink(at, h)
	case tar.TypeLink:
		return u.hardLink(at, h)
	}
	u.done.Left.Devices++
	return nil
}

// later remembers a path until the end.
func (u *unpacker) later(list *[]string, at string) error {
	if err := u.remember(at); err != nil {
		return err
	}
	*list = append(*list, at)
	return nil
}

func (u *unpacker) remember(at string) error {
	if u.names += len(at) + 64; u.names > maxNames {
		return fmt.Errorf("%w: the names of directories and of what is removed have more than %d bytes", ErrLimit, maxNames)
	}
	return nil
}

// changed is told that something other than a new directory comes to be at a path.
func (u *unpacker) changed(at string) {
	if _, on := u.t.visited[at]; on {
		u.t.forget()
	}
}

// put calls create, again after it has removed what the layer has at the path already.
func (u *unpacker) put(at string, create func(dir int, name string) error) error {
	dir, err := u.ensure(parent(at))
	if err != nil {
		return err
	}
	name := path.Base(at)
	u.changed(at)
	err = eintr.Do(func() error { return create(dir, name) })
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := u.clear(at); err != nil {
		return err
	}
	if dir, err = u.ensure(parent(at)); err != nil {
		return err
	}
	return eintr.Do(func() error { return create(dir, name) })
}

// clear removes what the layer has at a path.
func (u *unpacker) clear(at string) error {
	dir, err := u.t.dir(own, parent(at))
	if err != nil {
		return err
	}
	err = eintr.Do(func() error { return unix.Unlinkat(dir, path.Base(at), 0) })
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	u.t.closeDirs()
	u.t.forget()
	return u.removeTree(at)
}

// removeTree removes a directory of the layer. Its depth is bounded by that of names.
func (u *unpacker) removeTree(at string) error {
	fd, err := u.t.dir(own, at)
	if err != nil {
		return err
	}
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	for _, n := range names {
		if fd, err = u.t.dir(own, at); err != nil { // others may have taken its place among the open ones
			return err
		}
		err := eintr.Do(func() error { return unix.Unlinkat(fd, n, 0) })
		if errors.Is(err, unix.EISDIR) {
			err = u.removeTree(join(at, n))
		}
		if err != nil {
			return err
		}
	}
	u.t.closeDirs()
	up, err := u.t.dir(own, parent(at))
	if err != nil {
		return err
	}
	return eintr.Do(func() error { return unix.Unlinkat(up, path.Base(at), unix.AT_REMOVEDIR) })
}

// namesIn lists a directory, whose descriptor is the caller's.
func namesIn(fd int) ([]string, error) {
	again, err := eintr.Get(func() (int, error) { return unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(again), ".")
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// MakeDir writes a directory, and those above it, to an empty directory of a layer.
func MakeDir(ctx context.Context, dir string, below []string, name string) error {
	at, err := clean(name)
	if err != nil {
		return err
	}
	t, err := openTree(dir, below)
	if err != nil {
		return err
	}
	defer t.close()
	u := &unpacker{ctx: ctx, t: t, o: Options{Entries: MaxEntries}, root: os.Geteuid() == 0, dirs: map[string]dirMeta{}}
	if at, err = t.walk(at); err == nil {
		_, err = u.ensure(at)
	}
	return errors.Join(err, u.finish())
}
