package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// image is what is kept of one. The JSON names are the format on disk.
type image struct {
	ID       v1.Hash           `json:"id"`
	Digest   string            `json:"digest,omitempty"` // of the manifest
	Names    []string          `json:"names,omitempty"`
	Layers   []string          `json:"layers"` // chain digests, lowest first
	Top      layer.ID          `json:"top"`
	Run      driver.RunConfig  `json:"run"`
	Entry    []string          `json:"entrypoint,omitempty"`
	Cmd      []string          `json:"cmd,omitempty"`
	Shell    []string          `json:"shell,omitempty"`    // of a Dockerfile that begins with it
	OnBuild  []string          `json:"on_build,omitempty"` // what such a Dockerfile does first
	Ports    []string          `json:"ports,omitempty"`
	Volumes  []string          `json:"volumes,omitempty"`     // this and the two below are for an archive of it
	Stop     string            `json:"stop_signal,omitempty"` // as it was
	Health   *v1.HealthConfig  `json:"health,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Platform string            `json:"platform,omitempty"`
	Made     time.Time         `json:"made,omitzero"` // as the image says
	Added    time.Time         `json:"added"`
	Bytes    int64             `json:"bytes"`
	Entries  int64             `json:"entries"`
	Left     unpack.Left       `json:"left,omitzero"`
	Fetched  bool              `json:"fetched,omitempty"`
	Public   []string          `json:"public,omitempty"` // names by which whoever asked the registry got it

	used time.Time // guarded by Store.mu
}

// Config of a Store.
type Config struct {
	Dir    string
	Layers *layer.Store
	// Room is how many bytes the disk has for another image; 0: not known. nil: no limit.
	Room func() int64
	// Most is how many bytes the layers of all images may have; 0: no limit. What is unpacked at
	// the same time may have more by a layer each.
	Most int64
	// Share are the images that are everybody's, beside public ones: names with or without a tag,
	// or patterns of them, as package path matches them.
	Share []string
	// Free has those go that use images and are there for nobody yet; nil: there are none.
	Free func(context.Context)
	Log  *slog.Logger // nil: nothing is logged
}

// Store holds the images of this machine. All methods may be called concurrently.
type Store struct {
	cfg Config
	log *slog.Logger

	mu     sync.Mutex
	images map[v1.Hash]*image       // guarded by mu
	making map[string]chan struct{} // chains whose layer is being made, closed at the end; guarded by mu
}

const newName = ".new"

// holds begins the holders that are images, and keys the keys of layers that were made for images.
const holds, keys = "image ", "image "

func holder(id v1.Hash) string { return holds + id.String() }

// ofOthers: it is no image that holds a layer.
func ofOthers(holder string) bool { return !strings.HasPrefix(holder, holds) }

// Open reads the images that there are, and takes their holds: before the first sweep of the
// layers. One whose files are gone is forgotten.
func Open(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, log: cfg.Log, images: map[v1.Hash]*image{}, making: map[string]chan struct{}{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	err := errors.Join(os.RemoveAll(s.Spool()), os.MkdirAll(s.Spool(), 0o700))
	if err != nil {
		return nil, fmt.Errorf("directory of the images: %w", err)
	}
	files, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the images: %w", err)
	}
	for _, f := range files {
		hex, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue
		}
		m := new(image)
		b, err := atomicfile.Read(filepath.Join(cfg.Dir, f.Name()), MaxJSON)
		if err == nil {
			err = json.Unmarshal(b, m)
		}
		if err == nil && m.ID.Hex != hex {
			err = fmt.Errorf("it is that of %.80q", m.ID.String())
		}
		if err == nil {
			err = s.whole(m)
		}
		if err != nil {
			s.log.Warn("image is not usable; pull or import it again", slog.String("file", f.Name()), slog.Any("err", err))
			continue
		}
		if info, err := f.Info(); err == nil {
			m.used = info.ModTime()
		}
		s.images[m.ID] = m
	}
	s.settle()
	return s, nil
}

// whole takes the hold of an image whose layers are on the disk as a whole.
func (s *Store) whole(m *image) error {
	for id := m.Top; id != ""; {
		info, err := s.cfg.Layers.Get(id)
		if err != nil {
			return err
		}
		if info.Suspect() {
			return errors.New("the machine was restarted before all of it was on the disk")
		}
		id = info.Parent
	}
	return s.cfg.Layers.Hold(m.Top, holder(m.ID))
}

// settle leaves each name to the image that got it last.
func (s *Store) settle() {
	owner := map[string]*image{}
	for _, m := range s.images {
		for _, n := range m.Names {
			if o := owner[n]; o == nil || m.Added.After(o.Added) {
				owner[n] = m
			}
		}
	}
	for _, m := range s.images {
		m.Names = slices.DeleteFunc(m.Names, func(n string) bool { return owner[n] != m })
	}
}

// Spool is a directory for archives that are being read, on the disk of the images.
func (s *Store) Spool() string { return filepath.Join(s.cfg.Dir, newName) }

func (s *Store) file(id v1.Hash) string { return filepath.Join(s.cfg.Dir, id.Hex+".json") }

func (s *Store) write(m *image) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = atomicfile.Synced(s.file(m.ID), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// find returns the image that a key names: its ID, the first 6 digits or more of it, a name or
// a name with its digest. mu is held.
func (s *Store) find(key string) (*image, error) {
	hex := strings.TrimPrefix(key, "sha256:")
	var found []*image
	for _, m := range s.images {
		if m.ID.Hex == hex {
			return m, nil
		}
		if len(hex) >= 6 && strings.HasPrefix(m.ID.Hex, hex) {
			found = append(found, m)
		}
	}
	if len(hex) < len(key) && len(found) == 0 {
		return nil, notFound(key)
	}
	ref, err := ParseReference(key)
	if err != nil && len(found) == 0 {
		return nil, err
	}
	if err == nil {
		names := []string{ref.String()}
		if !strings.Contains(key, "/") { // as other builders call what they made here
			local := Reference{Host: "localhost", Path: strings.TrimPrefix(ref.Path, "library/"), Tag: ref.Tag, Digest: ref.Digest}
			names = append(names, local.String())
		}
		for _, name := range names {
			for _, m := range s.images {
				if slices.Contains(m.Names, name) || ref.Digest != "" && m.Digest == ref.Digest && m.from(ref) {
					return m, nil
				}
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, notFound(key)
	case 1:
		return found[0], nil
	}
	return nil, invalid("is %.80q, and %d images begin so; give more of it", key, len(found))
}

// from reports whether the image has a name of the same repository.
func (m *image) from(ref Reference) bool {
	return len(m.Names) == 0 || slices.ContainsFunc(m.Names, func(n string) bool { return ofRepository(n, ref) })
}

func ofRepository(name string, ref Reference) bool {
	return strings.HasPrefix(name, ref.Host+"/"+ref.Path+":") || strings.HasPrefix(name, ref.Host+"/"+ref.Path+"@")
}

func notFound(key string) error { return fmt.Errorf("image %.200q: %w", key, driver.ErrNotFound) }

// Use holds the topmost layer of an image for by, and returns it with what its programs get.
func (s *Store) Use(key, by string) (layer.ID, driver.RunConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(key)
	if err != nil {
		return "", driver.RunConfig{}, err
	}
	m.used = time.Now()
	_ = os.Chtimes(s.file(m.ID), m.used, m.used) // for the next Open; a time that is older is no fault
	return m.Top, m.Run, s.cfg.Layers.Hold(m.Top, by)
}

// Get returns an image. driver.ErrNotFound.
func (s *Store) Get(key string) (driver.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(key)
	if err != nil {
		return driver.Image{}, err
	}
	return m.info(), nil
}

// List returns all images, the newest first.
func (s *Store) List() []driver.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []driver.Image{}
	for _, m := range s.images {
		all = append(all, m.info())
	}
	sort.Slice(all, func(i, j int) bool { // slices.SortFunc is compiled for each type, which makes the program larger
		return cmp.Or(all[j].Added.Compare(all[i].Added), cmp.Compare(all[i].ID, all[j].ID)) < 0
	})
	return all
}

func (m *image) info() driver.Image {
	out := driver.Image{
		ID: m.ID.String(), Digest: m.Digest, Platform: m.Platform, Made: m.Made, Added: m.Added, Bytes: m.Bytes, Entries: m.Entries,
		Run: m.Run, Entrypoint: slices.Clone(m.Entry), Cmd: slices.Clone(m.Cmd),
		Shell: slices.Clone(m.Shell), OnBuild: slices.Clone(m.OnBuild), Ports: slices.Clone(m.Ports), Labels: m.Labels,
		Layers: slices.Clone(m.Layers), Left: m.Left.Sentences(), Public: len(m.Public) > 0,
	}
	for _, n := range m.Names {
		out.Names = append(out.Names, shortName(n))
	}
	slices.Sort(out.Names)
	return out
}

// Remove takes a name from an image, and the image if that was its last one, or if the key is
// its ID. Sandboxes and templates keep their files.
func (s *Store) Remove(key string) (driver.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(key)
	if err != nil {
		return driver.Image{}, err
	}
	if ref, err := ParseReference(key); err == nil && len(m.Names) > 1 {
		left := slices.DeleteFunc(slices.Clone(m.Names), func(n string) bool { return n == ref.String() })
		if len(left) < len(m.Names) {
			next := *m
			next.Names = left
			if err := s.write(&next); err != nil {
				return driver.Image{}, err
			}
			s.images[m.ID] = &next
			return next.info(), nil
		}
	}
	out := m.info()
	out.Names = nil
	return out, s.drop(m)
}

// Prune removes the images without a name, or all that no sandbox and no template uses, and
// returns them.
func (s *Store) Prune(all bool) ([]driver.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []driver.Image
	for _, m := range s.images {
		if all && s.cfg.Layers.Used(m.Top, ofOthers) || !all && len(m.Names) > 0 {
			continue
		}
		if err := s.drop(m); err != nil {
			return gone, err
		}
		gone = append(gone, m.info())
	}
	return gone, nil
}

// drop forgets an image; its layers go with the next sweep, unless others use them. mu is held.
func (s *Store) drop(m *image) error {
	if err := os.Remove(s.file(m.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("image: %w", err)
	}
	delete(s.images, m.ID)
	s.cfg.Layers.Release(m.Top, holder(m.ID))
	s.cfg.Layers.Expire(m.Top)
	return nil
}
