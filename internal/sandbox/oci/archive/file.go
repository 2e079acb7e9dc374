package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

const (
	// maxFiles is how many entries of an archive of images are looked at, and of a whole root.
	maxFiles = 2_000_000
	// maxKnown is how many of them are remembered: of the forms that have images in them, none
	// has more.
	maxKnown = 20_000
	// maxName is the longest name that is remembered, in bytes.
	maxName = 1024
)

// part is where the content of an entry is.
type part struct{ at, size int64 }

// File is a tar on the disk, with the places of its entries.
type File struct {
	f     *os.File
	size  int64
	sum   v1.Hash // of the whole tar
	parts map[string]part
	links map[string]string
	n     int
}

// Spool writes a stream to an empty file, which stays the caller's, and reads what is in it.
// room is the most bytes that it may have; 0: no limit.
func Spool(ctx context.Context, r io.Reader, f *os.File, room int64) (*File, error) {
	in, err := oci.Decompress(r)
	if err != nil {
		return nil, bad("cannot be decompressed: %v", err)
	}
	defer in.Close()
	sum := sha256.New()
	a := &File{f: f, parts: map[string]part{}, links: map[string]string{}}
	buf := make([]byte, 256<<10)
	for {
		n, err := in.Read(buf)
		if a.size += int64(n); room > 0 && a.size > room {
			return nil, fmt.Errorf("the archive has more than %d bytes, which is what the disk has room for: %w", room, unpack.ErrLimit)
		}
		if _, werr := f.Write(buf[:n]); werr != nil {
			return nil, werr
		}
		sum.Write(buf[:n]) // never fails
		if errors.Is(err, io.EOF) {
			break
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("the archive: %w", err)
		}
	}
	a.sum = v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sum.Sum(nil))}
	return a, a.index(ctx)
}

func bad(format string, args ...any) error {
	return &driver.InvalidError{Field: "archive", Reason: fmt.Sprintf(format, args...)}
}

// index finds the entries.
func (a *File) index(ctx context.Context) error {
	if _, err := a.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	t := tar.NewReader(a.f)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return bad("is no tar, or a damaged one, after %d entries: %v", a.n, err)
		}
		if a.n++; a.n > maxFiles {
			return bad("has more than %d entries", maxFiles)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if len(a.parts)+len(a.links) >= maxKnown || len(name) > maxName || len(h.Linkname) > maxName {
			continue
		}
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := a.f.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			if h.Size > a.size-at {
				return bad("is cut off in %.100q", h.Name)
			}
			a.parts[name] = part{at, h.Size}
		case tar.TypeSymlink:
			a.links[name] = strings.TrimPrefix(path.Join("/", path.Dir(name), h.Linkname), "/")
		case tar.TypeLink:
			a.links[name] = strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		}
	}
	if a.n == 0 {
		return bad("is empty; nothing of an image is in it")
	}
	return nil
}

// find returns the place of an entry, over links to other entries.
func (a *File) find(name string) (part, bool) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for range 8 {
		if p, ok := a.parts[name]; ok {
			return p, true
		}
		to, ok := a.links[name]
		if !ok {
			break
		}
		name = to
	}
	return part{}, false
}

// read returns an entry that is JSON.
func (a *File) read(name string) ([]byte, error) {
	p, ok := a.find(name)
	if !ok {
		return nil, bad("has no %.200q", name)
	}
	if p.size > oci.MaxJSON {
		return nil, bad("has a %.200q of %d bytes; the limit is %d", name, p.size, oci.MaxJSON)
	}
	b := make([]byte, p.size)
	if _, err := a.f.ReadAt(b, p.at); err != nil {
		return nil, err
	}
	return b, nil
}

// blob is an entry that is a layer.
func (a *File) blob(name string, digest v1.Hash) (oci.Blob, error) {
	p, ok := a.find(name)
	if !ok {
		return oci.Blob{}, bad("has no layer %.200q", name)
	}
	return oci.Blob{Digest: digest, Size: p.size, Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(a.f, p.at, p.size)), nil
	}}, nil
}
