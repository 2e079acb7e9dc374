package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// LeftOut is the name, below the top of an archive, of the list of omitted files. It is the
// name of its owner, too: a file of this name has none.
const LeftOut = "tend-left-out.txt"

// Archive writes the directory with all that is in it to w, as a tar whose paths begin
// with the directory's name. Links are links. While w waits, it holds only one open
// file. Files that the user may not read, entries that are neither file, directory nor
// link, and files that became shorter while they were read (the missing bytes are zero)
// are listed in a last entry, [LeftOut]. Entries that vanish meanwhile are omitted.
func (f FS) Archive(ctx context.Context, dir string, w io.Writer) error {
	abs, err := f.Resolve(dir)
	if err != nil {
		return err
	}
	t := &archiver{fs: f, ctx: ctx, tar: tar.NewWriter(w)}
	top := filepath.Base(abs)
	if abs == "/" {
		top = "root"
	}
	// A directory that cannot be read at all is no archive.
	names, err := t.read(abs)
	if err != nil {
		return pathError("archive", abs, err)
	}
	if err := t.dir(abs, top, names); err != nil {
		return pathError("archive", abs, err)
	}
	if len(t.left) > 0 {
		text := strings.Join(t.left, "\n") + "\n"
		if err := t.tar.WriteHeader(&tar.Header{Name: top + "/" + LeftOut, Uname: LeftOut, Mode: 0o600,
			Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := io.WriteString(t.tar, text); err != nil {
			return err
		}
	}
	return t.tar.Close()
}

// maxLeft bounds the list of what is left out, in lines.
const maxLeft = 10_000

type archiver struct {
	fs   FS
	ctx  context.Context
	tar  *tar.Writer
	left []string
}

// packed is an entry of a directory, and where it leads if it is a link.
type packed struct {
	info fs.FileInfo
	link string
	err  error
}

// read returns what is in a directory.
func (t *archiver) read(dir string) (all []packed, err error) {
	err = t.fs.Do(t.ctx, func(a *Actor) error {
		h, err := a.follow(dir)
		if err != nil {
			return err
		}
		defer h.close()
		names, err := a.names(h)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := a.Err(); err != nil {
				return err
			}
			m := packed{}
			m.info, m.err = os.Lstat(h.at(n.Name))
			if errors.Is(m.err, fs.ErrNotExist) {
				continue
			}
			if m.err == nil && m.info.Mode()&fs.ModeSymlink != 0 {
				m.link, m.err = os.Readlink(h.at(n.Name))
			}
			if m.err != nil {
				t.leave(filepath.Join(dir, n.Name), m.err)
				continue
			}
			a.root.shift(m.info)
			all = append(all, m)
		}
		return nil
	})
	return all, err
}

// dir writes a directory, and what is in it. A directory below that cannot be read is left out.
func (t *archiver) dir(dir, name string, all []packed) error {
	for _, m := range all {
		at, as := filepath.Join(dir, m.info.Name()), path.Join(name, m.info.Name())
		var err error
		switch typ := m.info.Mode().Type(); {
		case typ == fs.ModeSymlink:
			err = t.header(m, as)
		case typ == fs.ModeDir:
			below, rerr := t.read(at)
			if t.gone(at, rerr) {
				continue
			}
			if err = t.header(m, as+"/"); err == nil && rerr == nil {
				err = t.dir(at, as, below)
			}
		case typ == 0:
			err = t.file(at, as)
		default:
			t.leave(at, ErrNotRegular)
		}
		if err != nil {
			return err
		}
		if err := t.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// gone notes an error, and reports whether there is nothing to write any more.
func (t *archiver) gone(at string, err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotExist) {
		return true
	}
	t.leave(at, err)
	return false
}

func (t *archiver) leave(at string, err error) {
	switch n := len(t.left); {
	case n < maxLeft:
		t.left = append(t.left, fmt.Sprintf("%q: %v", at, err))
	case n == maxLeft:
		t.left = append(t.left, "and more")
	}
}

func (t *archiver) header(m packed, name string) error {
	h, err := tar.FileInfoHeader(m.info, m.link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	h.Mode &= 0o777
	return t.tar.WriteHeader(h)
}

func (t *archiver) file(at, name string) error {
	content, info, err := t.fs.Open(at)
	if err != nil {
		t.gone(at, err)
		return nil
	}
	defer content.Close()
	if err := t.header(packed{info: info}, name); err != nil {
		return err
	}
	n, err := io.CopyN(t.tar, content, info.Size())
	if err == nil {
		return nil
	}
	if ctxErr := t.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	// If it was w that failed, what follows fails too.
	t.leave(at, fmt.Errorf("%d bytes of %d could be read: %w", n, info.Size(), err))
	_, err = io.CopyN(t.tar, nothing{}, info.Size()-n)
	return err
}

// nothing fill what was announced.
type nothing struct{}

func (nothing) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
