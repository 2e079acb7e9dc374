package local

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/tend-run/tend/internal/sandbox/oci"
)

// archive places what is in an archive.
func (p *picker) archive(w *tar.Writer, f placed) error {
	in, err := f.source.open(f.name)
	if err != nil {
		return err
	}
	defer in.Close()
	r, err := oci.Decompress(in)
	if err != nil {
		return err
	}
	defer r.Close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		default:
			continue
		}
		name := relative(h.Name)
		if name == "" {
			continue
		}
		if strings.HasPrefix(path.Base(name), ".wh.") {
			return fmt.Errorf("the entry %.200q has a name that a layer cannot have", h.Name)
		}
		out := &tar.Header{Typeflag: h.Typeflag, Name: path.Join(f.to, name), Linkname: h.Linkname, Mode: h.Mode,
			Uid: h.Uid, Gid: h.Gid, Size: h.Size, ModTime: h.ModTime}
		p.own(out)
		switch h.Typeflag {
		case tar.TypeDir:
			out.Name += "/"
		case tar.TypeLink:
			out.Linkname = path.Join(f.to, relative(h.Linkname))
		}
		if err := w.WriteHeader(out); err != nil {
			return err
		}
		if _, err := io.Copy(w, t); err != nil {
			return err
		}
	}
}

// isArchive reports whether a file is a tar, which may be compressed.
func isArchive(from fileSource, name string) (bool, error) {
	in, err := from.open(name)
	if err != nil {
		return false, err
	}
	defer in.Close()
	head := make([]byte, 6)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	if bytes.HasPrefix(head[:n], []byte("\xfd7zXZ\x00")) || bytes.HasPrefix(head[:n], []byte("BZh")) {
		return false, fmt.Errorf("%.200q is compressed by xz or bzip2, which ADD does not do here; unpack it by RUN", name)
	}
	again, err := from.open(name)
	if err != nil {
		return false, err
	}
	defer again.Close()
	r, err := oci.Decompress(again)
	if err != nil {
		return false, nil //nolint:nilerr // no archive
	}
	defer r.Close()
	_, err = tar.NewReader(io.LimitReader(r, 1<<20)).Next()
	return err == nil, nil
}
