package archive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/oci"
)

// maxImages of one archive.
const maxImages = 64

// saved is an image in the manifest.json of docker save.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Images returns what is in the archive. They are good while the file is open.
func (a *File) Images() ([]oci.Bundle, error) {
	if _, ok := a.find("manifest.json"); ok {
		if b, err := a.read("manifest.json"); err == nil {
			var all []saved
			if err := json.NewDecoder(bytes.NewReader(b)).Decode(&all); err == nil && len(all) > 0 && all[0].Config != "" {
				return a.saved(all)
			}
		}
	}
	_, layout := a.find("oci-layout")
	if _, index := a.find("index.json"); layout && index {
		return a.layout()
	}
	return a.root()
}

func (a *File) saved(all []saved) (out []oci.Bundle, err error) {
	if len(all) > maxImages {
		return nil, bad("has %d images; the limit is %d", len(all), maxImages)
	}
	for _, s := range all {
		b := oci.Bundle{}
		if b.Config, err = a.read(s.Config); err != nil {
			return nil, err
		}
		for _, tag := range s.RepoTags {
			ref, err := oci.ParseReference(tag)
			if err != nil {
				return nil, err
			}
			b.Names = append(b.Names, ref.String())
		}
		if len(s.Layers) > oci.MaxLayers {
			return nil, bad("has an image of %d layers; the limit is %d", len(s.Layers), oci.MaxLayers)
		}
		for _, name := range s.Layers {
			blob, err := a.blob(name, v1.Hash{})
			if err != nil {
				return nil, err
			}
			b.Layers = append(b.Layers, blob)
		}
		out = append(out, b)
	}
	return out, nil
}

// layout reads an OCI layout: each image of its index, or of several platforms that of this
// machine.
func (a *File) layout() (out []oci.Bundle, err error) {
	raw, err := a.read("index.json")
	if err != nil {
		return nil, err
	}
	var index v1.IndexManifest
	if err := oci.Decode(raw, "index", &index); err != nil {
		return nil, err
	}
	if len(index.Manifests) > maxImages {
		return nil, bad("has %d images; the limit is %d", len(index.Manifests), maxImages)
	}
	all := index.Manifests
	if len(all) > 1 && nameOf(&all[0]) == "" && all[0].Platform != nil {
		one, err := oci.Own().Choose(all)
		if err != nil {
			return nil, err
		}
		all = []v1.Descriptor{one}
	}
	for _, d := range all {
		b, err := a.image(d, 0)
		if err != nil {
			return nil, err
		}
		if name := nameOf(&d); name != "" {
			// Only what has a path is a name; others are tags of what is not said.
			if ref, err := oci.ParseReference(name); err == nil && strings.ContainsAny(name, "/:") {
				b.Names = []string{ref.String()}
			}
		}
		out = append(out, b)
	}
	if len(out) == 0 {
		return nil, bad("is a layout without an image")
	}
	return out, nil
}

// nameOf is the name that a tool has given to an image of a layout.
func nameOf(d *v1.Descriptor) string {
	return cmp.Or(d.Annotations["io.containerd.image.name"], d.Annotations["org.opencontainers.image.ref.name"])
}

// maxNested is how deep an index may be in others.
const maxNested = 4

func (a *File) image(d v1.Descriptor, nested int) (b oci.Bundle, err error) {
	raw, err := a.verified(d.Digest, "manifest")
	if err != nil {
		return b, err
	}
	if d.MediaType.IsIndex() {
		if nested >= maxNested {
			return b, bad("has an index in an index in an index")
		}
		var index v1.IndexManifest
		if err := oci.Decode(raw, "index", &index); err != nil {
			return b, err
		}
		one, err := oci.Own().Choose(index.Manifests)
		if err != nil {
			return b, err
		}
		return a.image(one, nested+1)
	}
	var m v1.Manifest
	if err := oci.Decode(raw, "manifest", &m); err != nil {
		return b, err
	}
	if err := oci.CheckManifest(&m); err != nil {
		return b, err
	}
	b.Digest = d.Digest.String()
	if b.Config, err = a.verified(m.Config.Digest, "configuration"); err != nil {
		return b, err
	}
	for _, l := range m.Layers {
		blob, err := a.blob(blobName(l.Digest), l.Digest)
		if err != nil {
			return b, err
		}
		b.Layers = append(b.Layers, blob)
	}
	return b, nil
}

func blobName(d v1.Hash) string { return path.Join("blobs", d.Algorithm, d.Hex) }

func (a *File) verified(d v1.Hash, what string) ([]byte, error) {
	b, err := a.read(blobName(d))
	if err != nil {
		return nil, err
	}
	return b, oci.Verify(b, d, what)
}

// root is an image of one layer, whose configuration is made here: the same for the same tar.
func (a *File) root() ([]oci.Bundle, error) {
	own := oci.Own()
	c := v1.ConfigFile{OS: own.OS, Architecture: own.Architecture, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{a.sum}},
		Config: v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Cmd: []string{"/bin/sh"}}}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return []oci.Bundle{{Config: b, Layers: []oci.Blob{{Size: a.size, Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(a.f, 0, a.size)), nil
	}}}}}, nil
}
