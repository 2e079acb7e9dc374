package unpack

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// Tar writes the tar of a layer, of which Layer makes the same one again. Of the same directory
// it is the same each time.
func Tar(ctx context.Context, dir string, w io.Writer) error {
	t, err := openTree("", []string{dir})
	if err != nil {
		return err
	}
	defer t.close()
	p := &packer{ctx: ctx, t: t, w: tar.NewWriter(w), first: map[uint64]string{}}
	var st unix.Stat_t
	if err := eintr.Do(func() error { return unix.Fstat(t.tops[0], &st) }); err != nil {
		return err
	}
	h := headerOf(&st)
	h.Typeflag = tar.TypeDir
	if err := p.put(".", h, t.tops[0]); err != nil {
		return err
	}
	if err := p.directory(""); err != nil {
		return err
	}
	return p.w.Close()
}

// packer writes one tar.
type packer struct {
	ctx   context.Context
	t     *tree
	w     *tar.Writer
	first map[uint64]string // names of files that have several, by inode
}

// headerOf is what an entry says of all kinds of files.
func headerOf(st *unix.Stat_t) *tar.Header {
	return &tar.Header{Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Unix())}
}

// put writes the entry of a name. fd is the open file, of which it has the attributes; -1: none.
func (p *packer) put(name string, h *tar.Header, fd int) error {
	h.Name, h.Format = name, tar.FormatPAX // which has times as they are
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if os.Geteuid() != 0 { // all that is in a sandbox has one id
		h.Uid, h.Gid = 0, 0
	}
	if fd >= 0 {
		err := eachAttribute(fd, func(name string, value []byte) error {
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords[attrTar+name] = string(value)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return p.w.WriteHeader(h)
}

// mark writes an entry that removes something of the layers below.
func (p *packer) mark(name string) error {
	return p.put(name, &tar.Header{Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}, -1)
}

// directory writes what is in a directory.
func (p *packer) directory(at string) error {
	fd, err := p.t.dir(0, at)
	if err != nil {
		return err
	}
	if isOpaque(fd) {
		if err := p.mark(join(at, opaque)); err != nil {
			return err
		}
	}
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := p.entry(at, name); err != nil {
			return fmt.Errorf("%.200q: %w", join(at, name), err)
		}
	}
	return nil
}

func (p *packer) entry(dir, name string) error {
	at := join(dir, name)
	st, err := p.t.stat(0, dir, name)
	if err != nil {
		return err
	}
	if isWhiteout(&st) {
		return p.mark(join(dir, whiteout+name))
	}
	h := headerOf(&st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fd, err := p.t.dir(0, at)
		if err != nil {
			return err
		}
		h.Typeflag = tar.TypeDir
		if err := p.put(at, h, fd); err != nil {
			return err
		}
		return p.directory(at)
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = p.t.readlink(&node{there: true, st: st}, dir, name); err != nil {
			return err
		}
		return p.put(at, h, -1)
	case unix.S_IFREG:
		return p.file(at, h, &st)
	}
	return nil // a FIFO or a socket, which a layer of an image does not have
}

func (p *packer) file(at string, h *tar.Header, st *unix.Stat_t) error {
	if st.Nlink > 1 {
		if first, ok := p.first[st.Ino]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.put(at, h, -1)
		}
		p.first[st.Ino] = at
	}
	dir, err := p.t.dir(0, parent(at))
	if err != nil {
		return err
	}
	fd, err := eintr.Get(func() (int, error) {
		return unix.Openat(dir, path.Base(at), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), at)
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := p.put(at, h, fd); err != nil {
		return err
	}
	_, err = io.CopyN(p.w, f, st.Size)
	return err
}
