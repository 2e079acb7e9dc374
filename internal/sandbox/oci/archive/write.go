package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// Write writes an archive of an image: an OCI layout that has the list of "docker save", too.
// Layers are read twice, first for their digests and sizes, so that nothing of them is written
// to a disk.
func Write(ctx context.Context, w io.Writer, p *oci.Parts) error {
	buf := bufio.NewWriterSize(w, 256<<10)
	out := &writer{tar: tar.NewWriter(buf)}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	list := saved{RepoTags: p.Names, Layers: []string{}}
	out.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	config := p.Config
	for _, dir := range p.Dirs {
		d, err := out.layer(ctx, dir, list.Layers)
		if err != nil {
			return err
		}
		m.Layers, list.Layers = append(m.Layers, d), append(list.Layers, blobName(d.Digest))
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, d.Digest)
	}
	m.Config = out.blob(types.OCIConfigJSON, config)
	list.Config = blobName(m.Config.Digest)
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	one := out.blob(types.OCIManifestSchema1, m)
	for _, name := range p.Names {
		one.Annotations = map[string]string{"io.containerd.image.name": name}
		index.Manifests = append(index.Manifests, one)
	}
	if len(p.Names) == 0 {
		index.Manifests = []v1.Descriptor{one}
	}
	out.json("index.json", index)
	out.json("manifest.json", []saved{list})
	if out.err == nil {
		out.err = out.tar.Close()
	}
	if out.err == nil {
		out.err = buf.Flush()
	}
	return out.err
}

// writer writes the entries of an archive, until there is an error.
type writer struct {
	tar *tar.Writer
	err error
}

func (w *writer) header(name string, size int64) {
	if w.err == nil {
		w.err = w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size})
	}
}

func (w *writer) file(name string, b []byte) {
	if w.header(name, int64(len(b))); w.err == nil {
		_, w.err = w.tar.Write(b)
	}
}

func (w *writer) json(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.file(name, b)
}

// blob writes JSON under its digest.
func (w *writer) blob(kind types.MediaType, v any) v1.Descriptor {
	b, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	d := v1.Descriptor{MediaType: kind, Size: int64(len(b)), Digest: oci.Sum(b)}
	w.file(blobName(d.Digest), b)
	return d
}

// layer writes the tar of a layer under its digest, unless that is written already.
func (w *writer) layer(ctx context.Context, dir string, written []string) (d v1.Descriptor, err error) {
	sum := sha256.New()
	n := counted{w: sum}
	if err := unpack.Tar(ctx, dir, &n); err != nil {
		return d, err
	}
	d = v1.Descriptor{MediaType: types.OCIUncompressedLayer, Size: n.n,
		Digest: v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sum.Sum(nil))}}
	if slices.Contains(written, blobName(d.Digest)) {
		return d, nil
	}
	if w.header(blobName(d.Digest), d.Size); w.err == nil {
		w.err = unpack.Tar(ctx, dir, w.tar)
	}
	return d, w.err
}

type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
