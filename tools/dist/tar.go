package main

import (
	"archive/tar"
	"bytes"
	"time"

	"github.com/klauspost/compress/gzip"
)

// tarball writes the entries in their order, each path behind a prefix, all of root and
// of one time.
func tarball(prefix string, entries []entry, when time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: prefix + e.path, Mode: e.mode, Size: int64(len(e.data)), ModTime: when, Uname: "root", Gname: "root", Format: tar.FormatGNU}
		if e.dir {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// gzipped compresses without a name in the header.
func gzipped(data []byte, when time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	w.ModTime = when
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// archive is what is unpacked anywhere: the program, and what goes with it.
func archive(b *build) (string, []byte, error) {
	program := "tend"
	if b.os() == "windows" {
		program = "tend.exe"
	}
	entries := []entry{
		{path: program, mode: 0o755, data: b.tend},
		{path: "LICENSE", mode: 0o644, data: b.license},
		{path: "README.md", mode: 0o644, data: b.readme},
		{path: "tend.cdx.json", mode: 0o644, data: b.sbom},
	}
	for _, dir := range []string{"man1", "completions"} {
		files, err := b.shared(dir)
		if err != nil {
			return "", nil, err
		}
		for name, text := range files {
			entries = append(entries, entry{path: dir + "/" + name, mode: 0o644, data: text})
		}
	}
	entries = withParents(sorted(entries))
	packed, err := tarball(b.name()+"/", append([]entry{{path: ".", mode: 0o755, dir: true}}, entries...), b.when)
	if err == nil {
		packed, err = gzipped(packed, b.when)
	}
	return ".tar.gz", packed, err
}
