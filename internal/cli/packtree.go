package cli

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// packTree writes the tar of a directory with all that is in it: with owners, modes, times and
// hard links, as an image has them. Links are links. It tells how much is left out: sockets,
// devices, and what is on other file systems.
func packTree(ctx context.Context, dir string, w io.Writer, left func(int)) error {
	out := bufio.NewWriterSize(w, 256<<10)
	t := &treePacker{ctx: ctx, tar: tar.NewWriter(out), links: map[fileID]string{}}
	top, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer top.Close()
	t.root = top
	info, err := top.Stat(".")
	if err != nil {
		return err
	}
	t.device = fileIDOf(info).device
	if err := fs.WalkDir(top.FS(), ".", t.entry); err != nil {
		return err
	}
	if t.left > 0 {
		left(t.left)
	}
	return errors.Join(t.tar.Close(), out.Flush())
}

// fileID is what two names of one file have in common.
type fileID struct{ device, inode uint64 }

type treePacker struct {
	ctx    context.Context
	root   *os.Root
	tar    *tar.Writer
	device uint64
	links  map[fileID]string
	left   int
	// context: it is one of a build, which has other file systems in it, and each link of a file is one.
	context bool
}

func (t *treePacker) entry(name string, e fs.DirEntry, err error) error {
	if err = errors.Join(err, t.ctx.Err()); err != nil {
		return err
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	id := fileIDOf(info)
	if id.device != t.device && !t.context {
		t.left++
		if e.IsDir() {
			return errors.Join(t.header(name, "", info), fs.SkipDir)
		}
		return nil
	}
	switch e.Type() {
	case fs.ModeDir:
		return t.header(name, "", info)
	case fs.ModeSymlink:
		to, err := t.root.Readlink(name)
		if err != nil {
			return err
		}
		return t.header(name, to, info)
	case 0:
		return t.file(name, info, id)
	}
	t.left++
	return nil
}

func (t *treePacker) header(name, link string, info fs.FileInfo) error {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = filepath.ToSlash(name), "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	return t.tar.WriteHeader(h)
}

func (t *treePacker) file(name string, info fs.FileInfo, id fileID) error {
	if hasLinks(info) && !t.context {
		if first, ok := t.links[id]; ok {
			return t.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: filepath.ToSlash(name), Linkname: filepath.ToSlash(first)})
		}
		t.links[id] = name
	}
	f, err := t.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.header(name, "", info); err != nil {
		return err
	}
	if _, err := io.CopyN(t.tar, f, info.Size()); err != nil {
		return fmt.Errorf("%s became shorter while it was read: %w", name, err)
	}
	return nil
}
