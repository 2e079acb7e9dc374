package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// Taken reports how many images there are, and how many bytes the layers have that were made for
// images: each once, and also those that sandboxes have of images that were removed.
func (s *Store) Taken() driver.ImageUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return driver.ImageUse{Images: len(s.images), Bytes: s.cfg.Layers.Bytes(keys), Most: s.cfg.Most}
}

// within makes a layer that may have as many bytes as the disk and Config.Most leave. How many it
// has nobody knows before, so it is made again when more images had to go.
func (g *adding) within(b *Blob, unpackLayer func(most int64) (layer.ID, error)) (layer.ID, error) {
	for want, before := b.Size, int64(0); ; {
		room, left := g.s.Room(), g.s.makeRoom(g.ctx, want)
		if left <= before {
			return "", fmt.Errorf("%w: the files of all images may have %d bytes (tend serve --images-max), and no other image can go for it: "+
				"they are used or were imported", unpack.ErrLimit, g.s.cfg.Most)
		}
		if room > 0 && room <= left || left == math.MaxInt64 {
			return unpackLayer(room)
		}
		id, err := unpackLayer(left)
		if !errors.Is(err, unpack.ErrFull) {
			return id, err
		}
		want, before = 2*left, left
	}
}

// makeRoom removes fetched images that nothing uses, those first that were used longest ago, until
// so many bytes may be unpacked, and reports how many may.
func (s *Store) makeRoom(ctx context.Context, want int64) int64 {
	if s.cfg.Most <= 0 {
		return math.MaxInt64
	}
	for freed := s.cfg.Free == nil; ; {
		left := s.cfg.Most - s.cfg.Layers.Bytes(keys)
		if left >= max(want, 1) {
			return left
		}
		if !s.evict() {
			if freed {
				return left
			}
			s.cfg.Free(ctx)
			freed = true
			continue
		}
		if err := s.cfg.Layers.Sweep(ctx, math.MaxInt64); err != nil {
			return left
		}
	}
}

// evict removes one image.
func (s *Store) evict() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *image
	for _, m := range s.images {
		if m.Fetched && (oldest == nil || m.used.Before(oldest.used)) && !s.cfg.Layers.Used(m.Top, ofOthers) {
			oldest = m
		}
	}
	if oldest == nil {
		return false
	}
	err := s.drop(oldest)
	s.log.Info("image removed for another one", slog.Any("names", oldest.Names), slog.String("id", oldest.ID.String()), slog.Any("err", err))
	return err == nil
}
