package oci

import (
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
)

// Callers who are not the owner know nothing of an image that is not public: one that was
// imported, or fetched by credentials or from where no sandbox may reach. They ask its registry
// as if it were not here, and bring its layers: to know a digest is no right to the content.

// isShared reports whether the operator shares an image.
func (s *Store) isShared(m *image) bool {
	return slices.ContainsFunc(m.Names, func(full string) bool {
		name := shortName(full)
		return slices.ContainsFunc(s.cfg.Share, func(pattern string) bool {
			with, err := path.Match(pattern, name)
			without, _ := path.Match(pattern, name[:max(strings.LastIndexAny(name, ":@"), 0)])
			return err == nil && (with || without)
		})
	})
}

// publicAs reports whether everybody may have an image by a key: another name of it may be that
// of a closed repository, which says nothing of what it has.
func (m *image) publicAs(key string) bool {
	ref, err := ParseReference(key)
	return len(m.Public) > 0 && (key == m.ID.String() || err == nil && slices.ContainsFunc(m.Public, func(n string) bool {
		return n == ref.String() || ref.Digest != "" && ofRepository(n, ref)
	}))
}

// Shared is Get for whoever is not the owner. The image is Public if it is by this key.
func (s *Store) Shared(key string) (driver.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(key)
	if err != nil {
		return driver.Image{}, err
	}
	out := m.info()
	if out.Public = m.publicAs(key); !out.Public && !s.isShared(m) {
		return driver.Image{}, notFound(key)
	}
	return out, nil
}

// Given are the chains that whoever is not the owner may have without bringing them, once the
// registry has let him see a manifest: those of shared images, and of the one that was fetched
// by this manifest from this repository.
func (s *Store) Given(ref Reference, manifest string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := map[string]bool{}
	for _, m := range s.images {
		if len(m.Public) > 0 || s.isShared(m) || m.Digest == manifest && len(m.Names) > 0 && m.from(ref) {
			for _, chain := range m.Layers {
				given[chain] = true
			}
		}
	}
	return given
}

// kept reports whether an image has a name by which it is not public, and is not that with an ID.
// mu is held.
func (s *Store) kept(name string, id v1.Hash) bool {
	for _, m := range s.images {
		if m.ID != id && slices.Contains(m.Names, name) && !slices.Contains(m.Public, name) {
			return true
		}
	}
	return false
}

// prove checks that whoever asks has the content of a layer that is here. What comes is read as
// far as the layer can be the same.
func (g *adding) prove(b *Blob, diff v1.Hash, here layer.Info) error {
	in, err := b.Open(g.ctx)
	if err != nil {
		return err
	}
	v, err := newVerified(in, b, diff)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	most := 2*here.Bytes + here.Entries<<16 + 1<<20 // contents, and what a tar says of each entry
	n, err := io.Copy(io.Discard, io.LimitReader(v, most+1))
	if err == nil && n > most {
		err = invalid("has a layer of more than %d bytes; the one that its configuration names has less", most)
	}
	return v.finish(err)
}
