package local

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// fileSource is where COPY takes files from. Names are relative to its root; Lstat and Open follow
// no link at the end.
type fileSource interface {
	Lstat(name string) (*tar.Header, error)
	List(name string) ([]string, error)
	open(name string) (io.ReadCloser, error)
	// sum is that of a file's content.
	sum(name string) ([]byte, error)
}

// maxContextEntries bounds the files of a context, all of which are remembered.
const maxContextEntries = 1_000_000

// buildContext is the tar of a context. Its files are read where they are in it.
type buildContext struct {
	file  io.ReadCloser
	at    io.ReaderAt
	nodes map[string]*contextNode
}

type contextNode struct {
	h      *tar.Header
	offset int64
	sum    []byte
	names  []string // in a directory
}

// openContext reads what a context has; hash "": nothing.
func (r *builder) openContext(hash string) (*buildContext, error) {
	c := &buildContext{nodes: map[string]*contextNode{"": {h: &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}}}}
	if hash == "" {
		return c, nil
	}
	blob, err := r.b.spec.Blob(hash)
	if err != nil {
		return nil, err
	}
	c.file = blob
	if err := c.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("context: %w", err), blob.Close())
	}
	return c, nil
}

func (c *buildContext) close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

// counted knows how far a tar was read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

func (c *buildContext) read() error {
	at, ok := c.file.(io.ReaderAt)
	if !ok {
		return errors.New("it is no file")
	}
	c.at = at
	in := &counted{r: c.file}
	t := tar.NewReader(in)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d entries: %w", len(c.nodes)-1, err)
		}
		if len(c.nodes) > maxContextEntries {
			return fmt.Errorf("there are more than %d files; leave some out by .dockerignore: %w", maxContextEntries, driver.ErrLimit)
		}
		n := &contextNode{h: h, offset: in.n}
		switch h.Typeflag {
		case tar.TypeReg:
			sum := sha256.New()
			if _, err := io.Copy(sum, t); err != nil {
				return err
			}
			n.sum = sum.Sum(nil)
		case tar.TypeDir, tar.TypeSymlink:
		default:
			continue
		}
		c.add(relative(h.Name), n)
	}
}

func (c *buildContext) add(name string, n *contextNode) {
	n.h.Uid, n.h.Gid = 0, 0
	if old := c.nodes[name]; old != nil {
		old.h, old.offset, old.sum = n.h, n.offset, n.sum
		return
	}
	c.nodes[name] = n
	up := relative(path.Dir("/" + name))
	if c.nodes[up] == nil {
		c.add(up, &contextNode{h: &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}})
	}
	c.nodes[up].names = append(c.nodes[up].names, path.Base(name))
}

// relative is a path below a root, without '..'.
func relative(name string) string { return strings.Trim(path.Clean("/"+name), "/") }

func (c *buildContext) find(name string) (*contextNode, error) {
	if n := c.nodes[relative(name)]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

func (c *buildContext) Lstat(name string) (*tar.Header, error) {
	n, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return n.h, nil
}

func (c *buildContext) List(name string) ([]string, error) {
	n, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(slices.Values(n.names)), nil
}

func (c *buildContext) open(name string) (io.ReadCloser, error) {
	n, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(io.NewSectionReader(c.at, n.offset, n.h.Size)), nil
}

func (c *buildContext) sum(name string) ([]byte, error) {
	n, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return n.sum, nil
}

// layersSource are the files of a stage or an image.
type layersSource struct{ *unpack.View }

func (l layersSource) open(name string) (io.ReadCloser, error) {
	f, err := l.Open(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (l layersSource) sum(name string) ([]byte, error) { return sumOf(l, name) }

func sumOf(s fileSource, name string) ([]byte, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return sum.Sum(nil), err
}

// oneFile is a source of one file: a heredoc, or what was fetched.
type oneFile struct {
	name string
	h    *tar.Header
	data io.ReaderAt
}

func (o *oneFile) Lstat(name string) (*tar.Header, error) {
	switch relative(name) {
	case "":
		return &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}, nil
	case o.name:
		return o.h, nil
	}
	return nil, fs.ErrNotExist
}

func (o *oneFile) List(string) ([]string, error)   { return []string{o.name}, nil }
func (o *oneFile) sum(name string) ([]byte, error) { return sumOf(o, name) }
func (o *oneFile) open(string) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(o.data, 0, o.h.Size)), nil
}

// maxSourceLinks is how many links lead to a file at most.
const maxSourceLinks = 40

// follow finds where a path leads in a source, whose links do not lead out of it.
func follow(s fileSource, name string) (real string, h *tar.Header, err error) {
	rest, links := strings.Split(relative(name), "/"), 0
	h, err = s.Lstat("")
	for len(rest) > 0 && err == nil {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			real = relative(path.Dir("/" + real))
			h, err = s.Lstat(real)
			continue
		}
		at := path.Join(real, part)
		if h, err = s.Lstat(at); err != nil {
			break
		}
		if h.Typeflag != tar.TypeSymlink {
			real = at
			continue
		}
		if links++; links > maxSourceLinks {
			return "", nil, fmt.Errorf("%.200q: there are more than %d links on the way, or they lead to each other", name, maxSourceLinks)
		}
		if strings.HasPrefix(h.Linkname, "/") {
			real = ""
		}
		rest = append(strings.Split(h.Linkname, "/"), rest...)
		if h, err = s.Lstat(real); err != nil {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%.200q: %w", name, fs.ErrNotExist)
	}
	return real, h, err
}
