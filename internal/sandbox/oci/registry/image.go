package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
)

var accepted = strings.Join([]string{string(types.OCIImageIndex), string(types.OCIManifestSchema1), string(types.DockerManifestList),
	string(types.DockerManifestSchema2)}, ", ")

// maxNested is how deep an index may be in others.
const maxNested = 4

// Image is an image in a registry, of which manifest and configuration are here.
type Image struct {
	Digest string // of its manifest
	Config []byte
	Layers []v1.Descriptor // lowest first

	s *session
}

// Close ends the connections. No fetch may be under way.
func (m *Image) Close() { m.s.close() }

// Public reports whether everybody would have got what has come so far: without credentials, and
// from where every request may lead.
func (m *Image) Public() bool { return !m.s.closed.Load() }

// Size is how many bytes the layers from an index on have.
func (m *Image) Size(from int) (n int64) {
	for _, l := range m.Layers[min(from, len(m.Layers)):] {
		if n > math.MaxInt64-l.Size {
			return math.MaxInt64
		}
		n += l.Size
	}
	return n
}

// Find finds an image, at a mirror or at its registry.
func (c *Config) Find(ctx context.Context, req *Request) (*Image, error) {
	var failed []error
	for _, at := range c.sources(req.Ref) {
		s, err := c.open(ctx, req, at)
		if err == nil {
			var m *Image
			if m, err = s.image(ctx, req.Ref); err == nil {
				return m, nil
			}
			s.close()
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		failed = append(failed, err)
	}
	if len(failed) > 1 && errors.Is(failed[len(failed)-1], driver.ErrNotFound) {
		return nil, failed[len(failed)-1]
	}
	return nil, errors.Join(failed...)
}

func (s *session) image(ctx context.Context, ref oci.Reference) (*Image, error) {
	want := v1.Hash{}
	at := ref.Tag
	if ref.Digest != "" {
		var err error
		if want, err = v1.NewHash(ref.Digest); err != nil {
			return nil, &driver.InvalidError{Field: "image", Reason: fmt.Sprintf("has the digest %.100q, which is none", ref.Digest)}
		}
		at = ref.Digest
	}
	for range maxNested {
		raw, kind, err := s.manifest(ctx, at, want)
		if err != nil {
			return nil, err
		}
		if !kind.IsIndex() {
			return s.fromManifest(ctx, raw)
		}
		var index v1.IndexManifest
		if err := oci.Decode(raw, "index", &index); err != nil {
			return nil, err
		}
		one, err := oci.Own().Choose(index.Manifests)
		if err != nil {
			return nil, err
		}
		want, at = one.Digest, one.Digest.String()
	}
	return nil, &driver.InvalidError{Field: "image", Reason: "is an index in an index in an index; nobody makes one"}
}

// manifest returns a manifest or an index, whose digest is as it was asked for.
func (s *session) manifest(ctx context.Context, at string, want v1.Hash) ([]byte, types.MediaType, error) {
	resp, err := s.get(ctx, "/manifests/"+at, http.Header{"Accept": {accepted}})
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(quiet(resp.Body, s.quiet), oci.MaxJSON+1))
	if err != nil {
		return nil, "", fmt.Errorf("manifest of %s: %w", s.ref.Short(), err)
	}
	if want.Hex != "" {
		if err := oci.Verify(b, want, "manifest"); err != nil {
			return nil, "", err
		}
	}
	var said struct {
		MediaType types.MediaType `json:"mediaType"`
		Manifests []v1.Descriptor `json:"manifests"`
		Schema    int             `json:"schemaVersion"`
	}
	if err := oci.Decode(b, "manifest", &said); err != nil {
		return nil, "", err
	}
	if said.Schema == 1 {
		return nil, "", &driver.InvalidError{Field: "image",
			Reason: "has a manifest of Docker's schema 1, of 2015; push it again with a tool of today"}
	}
	// What is in it counts: the header can say anything.
	if len(said.Manifests) > 0 || said.MediaType.IsIndex() {
		return b, types.OCIImageIndex, nil
	}
	return b, types.OCIManifestSchema1, nil
}

func (s *session) fromManifest(ctx context.Context, raw []byte) (*Image, error) {
	var m v1.Manifest
	if err := oci.Decode(raw, "manifest", &m); err != nil {
		return nil, err
	}
	if err := oci.CheckManifest(&m); err != nil {
		return nil, err
	}
	body, err := s.blob(ctx, m.Config.Digest, 0, m.Config.Size)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	config, err := io.ReadAll(io.LimitReader(body, oci.MaxJSON+1))
	if err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", s.ref.Short(), err)
	}
	if err := oci.Verify(config, m.Config.Digest, "configuration"); err != nil {
		return nil, err
	}
	return &Image{Digest: oci.Sum(raw).String(), Config: config, Layers: m.Layers, s: s}, nil
}

// blob returns a blob of a size from an offset on. A server that knows no ranges sends all of it, of
// which the beginning is read here.
func (s *session) blob(ctx context.Context, d v1.Hash, from, size int64) (io.ReadCloser, error) {
	header := http.Header{}
	if from > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, size-1))
	}
	resp, err := s.get(ctx, "/blobs/"+d.String(), header)
	if err != nil {
		return nil, err
	}
	body := quiet(resp.Body, s.quiet)
	if from > 0 && resp.StatusCode != http.StatusPartialContent {
		if _, err := io.CopyN(io.Discard, body, from); err != nil {
			return nil, errors.Join(err, body.Close())
		}
	}
	return body, nil
}
