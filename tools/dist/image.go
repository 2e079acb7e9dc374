package main

import (
	"encoding/json"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// image is an OCI image from scratch, as a tar of its layout: the program alone. It is
// what others copy the program from (COPY --from), and runs by itself, too.
func image(b *build) (string, []byte, error) {
	layer, err := tarball("", withParents(sorted([]entry{
		{path: "usr/bin/tend", mode: 0o755, data: b.tend},
		{path: "usr/share/doc/tend/copyright", mode: 0o644, data: b.license},
		{path: "usr/share/doc/tend/tend.cdx.json", mode: 0o644, data: b.sbom},
		// Who processes run as is looked up here.
		{path: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/usr/bin/tend\n")},
		{path: "etc/group", mode: 0o644, data: []byte("root:x:0:\n")},
		{path: "root", mode: 0o700, dir: true},
		{path: "tmp", mode: 0o1777, dir: true},
		{path: "var/lib/tend", mode: 0o700, dir: true},
	})), b.when)
	if err != nil {
		return "", nil, err
	}
	packed, err := gzipped(layer, b.when)
	if err != nil {
		return "", nil, err
	}
	labels := map[string]string{
		v1.AnnotationTitle: "tend", v1.AnnotationDescription: summary, v1.AnnotationVersion: b.version,
		v1.AnnotationLicenses: "Apache-2.0", v1.AnnotationSource: homepage,
	}
	config, err := json.Marshal(v1.Image{
		Created:  &b.when,
		Platform: v1.Platform{OS: b.os(), Architecture: b.arch()},
		Config: v1.ImageConfig{
			Entrypoint: []string{"/usr/bin/tend"}, Cmd: []string{"serve"}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			WorkingDir: "/root", StopSignal: "SIGTERM", Labels: labels,
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
		History: []v1.History{{Created: &b.when, CreatedBy: "make dist"}},
	})
	if err != nil {
		return "", nil, err
	}
	var blobs []entry
	blob := func(kind string, data []byte) v1.Descriptor {
		d := digest.FromBytes(data)
		blobs = append(blobs, entry{path: "blobs/sha256/" + d.Encoded(), mode: 0o644, data: data})
		return v1.Descriptor{MediaType: kind, Digest: d, Size: int64(len(data))}
	}
	manifest, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: blob(v1.MediaTypeImageConfig, config), Layers: []v1.Descriptor{blob(v1.MediaTypeImageLayerGzip, packed)}, Annotations: labels,
	})
	if err != nil {
		return "", nil, err
	}
	whole := blob(v1.MediaTypeImageManifest, manifest)
	whole.Platform = &v1.Platform{OS: b.os(), Architecture: b.arch()}
	whole.Annotations = map[string]string{v1.AnnotationRefName: "tend:" + strings.ReplaceAll(b.version, "+", "-")}
	index, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{whole}})
	if err != nil {
		return "", nil, err
	}
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return "", nil, err
	}
	data, err := tarball("", withParents(sorted(append(blobs,
		entry{path: v1.ImageLayoutFile, mode: 0o644, data: layout}, entry{path: v1.ImageIndexFile, mode: 0o644, data: index}))), b.when)
	return ".oci.tar", data, err
}
