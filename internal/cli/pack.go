package cli

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// packer writes what is copied into a sandbox as a tar stream.
type packer struct {
	kind string // dir, file, or tar for a stream that is one
	name string // by which it is copied into a directory; "": what is in it
	// aside is the name of a single file until it is whole: others may be copied into
	// the same directory meanwhile.
	aside string
	root  *os.Root
	file  *os.File
	in    io.Reader
	// omit is the daemon's own directory, which is left out: in it are the files of the
	// sandbox that it is copied to, and so the copy, without an end. nil: there is none.
	omit    fs.FileInfo
	omitted bool
	// exact: the stream is the same whenever the files are. It has no times, and no file may be
	// removed meanwhile.
	exact bool
	facts copyFacts
}

// newPacker opens the source. A link that is named itself is followed; those below a
// directory stay links.
func newPacker(stdin io.Reader, source string) (*packer, error) {
	if source == "-" {
		return &packer{kind: "tar", in: stdin}, nil
	}
	info, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	p := &packer{name: baseOf(filepath.ToSlash(source)), aside: ".tend-cp-" + rand.Text()[:12]}
	if p.name == "" && source[len(source)-1] != '.' { // "..", "/"
		if abs, err := filepath.Abs(source); err == nil {
			p.name = baseOf(filepath.ToSlash(abs))
		}
	}
	switch {
	case info.IsDir():
		p.kind = "dir"
		p.root, err = os.OpenRoot(source)
	case info.Mode().IsRegular():
		p.kind = "file"
		p.file, err = os.Open(source)
	default:
		return nil, fmt.Errorf("%s is neither a file nor a directory; copy its content as a tar stream from stdin", source)
	}
	return p, err
}

func (p *packer) close() {
	if p.root != nil {
		p.root.Close()
	}
	if p.file != nil {
		p.file.Close()
	}
}

func (p *packer) pack(ctx context.Context, w io.Writer) (err error) {
	if p.kind == "tar" {
		p.facts.Bytes, err = io.Copy(w, p.in)
		return err
	}
	t := tar.NewWriter(w)
	if p.kind == "file" {
		info, err := p.file.Stat()
		if err == nil {
			err = p.packFile(t, p.file, p.aside, info)
		}
		return errors.Join(err, t.Close())
	}
	if err := p.tree(ctx, t, "."); err != nil {
		return err
	}
	return t.Close()
}

// tree writes what has a name below the root, and all that is below it.
func (p *packer) tree(ctx context.Context, t *tar.Writer, from string) error {
	return fs.WalkDir(p.root.FS(), from, func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) && !p.exact {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		switch {
		case e.IsDir() && p.omit != nil && os.SameFile(info, p.omit):
			p.omitted = true
			return fs.SkipDir
		case e.IsDir():
			return t.WriteHeader(p.header(tar.TypeDir, name+"/", info))
		case e.Type() == fs.ModeSymlink:
			link, err := p.root.Readlink(name)
			if err != nil {
				return err
			}
			h := p.header(tar.TypeSymlink, name, info)
			h.Linkname = filepath.ToSlash(link)
			p.facts.Files++
			return t.WriteHeader(h)
		case e.Type().IsRegular():
			f, err := p.root.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			return p.packFile(t, f, name, info)
		}
		p.facts.Skipped++
		return nil
	})
}

// header has neither owners, which are other people inside, nor the times of more than
// the content.
func (p *packer) header(kind byte, name string, info fs.FileInfo) *tar.Header {
	h := &tar.Header{Typeflag: kind, Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	if p.exact {
		h.ModTime = time.Unix(0, 0)
	}
	return h
}

func (p *packer) packFile(t *tar.Writer, f *os.File, name string, info fs.FileInfo) error {
	h := p.header(tar.TypeReg, name, info)
	h.Size = info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(t, io.LimitReader(f, h.Size))
	p.facts.Files++
	p.facts.Bytes += n
	if err == nil && n < h.Size {
		err = fmt.Errorf("%s became shorter while it was read", f.Name())
	}
	return err
}
