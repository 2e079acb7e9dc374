// Package ocitest makes images for tests: layers of a few files, and the archives in which they
// come.
package ocitest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/tend-run/tend/internal/support/proctest"
)

// File is an entry of a layer: a directory if its name ends with a slash, a link if To is set.
type File struct {
	Name, Text, To string
	Mode           int64 // 0: 0644, of directories 0755
	UID, GID       int
}

// Layer is the tar of some files.
func Layer(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Uid: f.UID, Gid: f.GID, Size: int64(len(f.Text)),
			ModTime: time.Unix(1_700_000_000, 0)}
		switch {
		case f.Name[len(f.Name)-1] == '/':
			h.Typeflag, h.Mode = tar.TypeDir, max(f.Mode, 0o755)
		case f.To != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.To
		case f.Mode == 0:
			h.Mode = 0o644
		}
		proctest.Must(t, w.WriteHeader(h))
		proctest.Value(io.WriteString(w, f.Text))(t)
	}
	proctest.Must(t, w.Close())
	return b.Bytes()
}

// Hash is the digest of bytes.
func Hash(b []byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(b))}
}

// Image is an image of layers, which are tars.
type Image struct {
	Layers [][]byte
	Config v1.Config
	// Pack compresses layers; nil: they are not compressed.
	Pack func(testing.TB, []byte) []byte
	// Change is applied to the configuration; nil: nothing is.
	Change func(*v1.ConfigFile)
}

// JSON is the configuration.
func (i *Image) JSON(t testing.TB) []byte {
	t.Helper()
	c := v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: i.Config, RootFS: v1.RootFS{Type: "layers"}}
	for _, l := range i.Layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, Hash(l))
	}
	if i.Change != nil {
		i.Change(&c)
	}
	return proctest.Value(json.Marshal(c))(t)
}

// ID of the image.
func (i *Image) ID(t testing.TB) string { return Hash(i.JSON(t)).String() }

// Gzip compresses.
func Gzip(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	proctest.Value(w.Write(b))(t)
	proctest.Must(t, w.Close())
	return out.Bytes()
}

// Zstd compresses.
func Zstd(t testing.TB, b []byte) []byte {
	w := proctest.Value(zstd.NewWriter(nil))(t)
	return w.EncodeAll(b, nil)
}

// Packed are the layers as they are in a registry.
func (i *Image) Packed(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, l := range i.Layers {
		if i.Pack != nil {
			l = i.Pack(t, l)
		}
		all = append(all, l)
	}
	return all
}

// Manifest of the image, with its configuration and layers by their digests.
func (i *Image) Manifest(t testing.TB) (manifest []byte, blobs map[v1.Hash][]byte) {
	t.Helper()
	config := i.JSON(t)
	blobs = map[v1.Hash][]byte{Hash(config): config}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(config)), Digest: Hash(config)}}
	for _, l := range i.Packed(t) {
		kind := types.OCIUncompressedLayer
		switch {
		case bytes.HasPrefix(l, []byte{0x1f, 0x8b}):
			kind = types.OCILayer
		case bytes.HasPrefix(l, []byte{0x28, 0xb5}):
			kind = types.OCILayerZStd
		}
		blobs[Hash(l)] = l
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: kind, Size: int64(len(l)), Digest: Hash(l)})
	}
	return proctest.Value(json.Marshal(m))(t), blobs
}

// Tar is an archive of files by name, in an order.
func Tar(t testing.TB, files ...File) []byte { return Layer(t, files...) }

// Saved is the archive that docker save makes.
func (i *Image) Saved(t testing.TB, tags ...string) []byte {
	t.Helper()
	config := i.JSON(t)
	name := Hash(config).Hex + ".json"
	files := []File{}
	layers := []string{}
	for n, l := range i.Packed(t) {
		at := fmt.Sprintf("%064d/layer.tar", n)
		files, layers = append(files, File{Name: at, Text: string(l)}), append(layers, at)
	}
	list := proctest.Value(json.Marshal([]map[string]any{{"Config": name, "RepoTags": tags, "Layers": layers}}))(t)
	return Tar(t, append(files, File{Name: name, Text: string(config)}, File{Name: "manifest.json", Text: string(list)})...)
}

// Layout is an OCI layout as a tar.
func (i *Image) Layout(t testing.TB, name string) []byte {
	t.Helper()
	manifest, blobs := i.Manifest(t)
	blobs[Hash(manifest)] = manifest
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
		MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: Hash(manifest)}}}
	if name != "" {
		index.Manifests[0].Annotations = map[string]string{"org.opencontainers.image.ref.name": name}
	}
	list := proctest.Value(json.Marshal(index))(t)
	files := []File{{Name: "oci-layout", Text: `{"imageLayoutVersion":"1.0.0"}`}, {Name: "index.json", Text: string(list)}}
	for d, b := range blobs {
		files = append(files, File{Name: path.Join("blobs", d.Algorithm, d.Hex), Text: string(b)})
	}
	return Tar(t, files...)
}
