package oci

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// Add has the store have an image: it makes the layers that are missing, and gives the image
// its names. say gets a sentence for each layer; it may be nil.
func (s *Store) Add(ctx context.Context, b Bundle, say func(string)) (driver.Image, error) {
	if say == nil {
		say = func(string) {}
	}
	if len(b.Names) > MaxNames {
		return driver.Image{}, invalid("has %d names; the limit is %d", len(b.Names), MaxNames)
	}
	c, err := b.config()
	if err != nil {
		return driver.Image{}, err
	}
	m := &image{ID: Sum(b.Config), Digest: b.Digest, Fetched: b.Fetched, Names: b.Names,
		Layers: chains(c.RootFS.DiffIDs), Made: c.Created.Time.UTC(),
		Entry: c.Config.Entrypoint, Cmd: c.Config.Cmd, Labels: c.Config.Labels, Shell: c.Config.Shell, OnBuild: c.Config.OnBuild,
		Ports: slices.Sorted(maps.Keys(c.Config.ExposedPorts)), Volumes: slices.Sorted(maps.Keys(c.Config.Volumes)),
		Stop: c.Config.StopSignal, Health: c.Config.Healthcheck}
	if p := c.Platform(); p != nil {
		m.Platform = p.String()
	}
	g := &adding{s: s, ctx: ctx, m: m, given: b.Given, by: "image added " + rand.Text(), say: say}
	defer g.release()
	if err := g.layers(b.Layers, c.RootFS.DiffIDs); err != nil {
		return driver.Image{}, err
	}
	if err := g.settings(&c.Config); err != nil {
		return driver.Image{}, err
	}
	for _, text := range m.Left.Sentences() {
		say(text)
		s.log.Info("image: "+text, slog.String("id", m.ID.String()))
	}
	if b.Public != nil && b.Public() {
		m.Public = b.Names
	}
	return s.enlist(m, b.Given == nil)
}

// Missing reports from which layer on an image is not here, by its configuration: as many as it
// has layers if all are. given are the chains that whoever asks may have; nil: all.
func (s *Store) Missing(config []byte, given map[string]bool) (int, error) {
	c := new(v1.ConfigFile)
	if err := Decode(config, "configuration", c); err != nil {
		return 0, err
	}
	all := chains(c.RootFS.DiffIDs)
	for i, chain := range all {
		if given != nil && !given[chain] {
			return i, nil
		}
		by := "image looked at " + rand.Text()
		id, ok := s.cfg.Layers.Find("image "+chain, by)
		if !ok {
			return i, nil
		}
		s.cfg.Layers.Release(id, by)
	}
	return len(all), nil
}

// adding is an image that is being added.
type adding struct {
	s     *Store
	ctx   context.Context
	m     *image
	given map[string]bool // as in a Bundle
	by    string
	say   func(string)
}

// release lets go what was held until the image holds it.
func (g *adding) release() { g.s.cfg.Layers.Release(g.m.Top, g.by) }

// swap makes a held layer the topmost.
func (g *adding) swap(id layer.ID) {
	if g.m.Top != "" && g.m.Top != id {
		g.s.cfg.Layers.Release(g.m.Top, g.by)
	}
	g.m.Top = id
}

// layers finds or makes the layers.
func (g *adding) layers(blobs []Blob, diffs []v1.Hash) error {
	for i, chain := range g.m.Layers {
		made := false
		id, err := g.s.once(g.ctx, "image "+chain, g.by, func() (layer.ID, error) {
			made = true
			id, err := g.within(&blobs[i], func(most int64) (layer.ID, error) { return g.unpack(&blobs[i], diffs[i], "image "+chain, most) })
			if err != nil {
				err = fmt.Errorf("layer %d of %d: %w", i+1, len(blobs), err)
			}
			return id, err
		})
		if err != nil {
			return err
		}
		word := "was there already"
		if made {
			word = "is unpacked"
		}
		g.say(fmt.Sprintf("layer %d of %d %s", i+1, len(blobs), word))
		g.swap(id)
		info, err := g.s.cfg.Layers.Get(id)
		if err == nil && !made && g.given != nil && !g.given[chain] {
			err = g.prove(&blobs[i], diffs[i], info)
		}
		if err != nil {
			return err
		}
		g.m.Bytes, g.m.Entries = g.m.Bytes+info.Bytes, g.m.Entries+info.Entries
	}
	if g.m.Top != "" {
		return nil
	}
	id, err := g.s.once(g.ctx, "image empty", g.by, func() (layer.ID, error) { // a sandbox has one layer at least
		return g.s.cfg.Layers.Make(layer.Meta{Whole: true, Key: "image empty", By: g.by}, func(string) error { return nil })
	})
	g.swap(id)
	return err
}

// once finds the layer with a key, or makes it; of several callers one does, and the others wait.
func (s *Store) once(ctx context.Context, key, by string, create func() (layer.ID, error)) (layer.ID, error) {
	for {
		s.mu.Lock()
		if id, ok := s.cfg.Layers.Find(key, by); ok {
			s.mu.Unlock()
			return id, nil
		}
		under := s.making[key]
		if under == nil {
			under = make(chan struct{})
			s.making[key] = under
			s.mu.Unlock()
			defer func() {
				s.mu.Lock()
				delete(s.making, key)
				s.mu.Unlock()
				close(under)
			}()
			return create()
		}
		s.mu.Unlock()
		select {
		case <-under: // whoever made it may have failed: then this one tries
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// unpack makes a layer, and checks both digests.
func (g *adding) unpack(b *Blob, diff v1.Hash, key string, most int64) (layer.ID, error) {
	var done unpack.Result
	meta := layer.Meta{Parent: g.m.Top, Whole: true, Key: key, By: g.by}
	id, err := g.s.cfg.Layers.Unpack(meta, func(dir string, below []string) (_, _ int64, err error) {
		in, err := b.Open(g.ctx)
		if err != nil {
			return 0, 0, err
		}
		r, err := newVerified(in, b, diff)
		if err == nil {
			done, err = unpack.Layer(g.ctx, r, dir, unpack.Options{Below: below, Entries: max(1, unpack.MaxEntries-g.m.Entries),
				Bytes: most, Room: g.s.Room})
			return done.Entries, done.Bytes, r.finish(err)
		}
		return 0, 0, errors.Join(err, in.Close())
	})
	if err == nil {
		g.m.Left.Add(done.Left)
	}
	return id, err
}

// maxBehind is the most bytes behind the end of a tar: they fill a block of its writer. No disk bounds what is only read.
const maxBehind = 16 << 20

// verified reads the tar of a layer and sees both digests.
type verified struct {
	outer, inner hash.Hash
	size         int64
	in           io.Closer
	raw          io.Reader // the bytes as they come
	tar          io.ReadCloser
	out          io.Reader
	stop         func()
	blob         *Blob
	diff         v1.Hash
}

func newVerified(from io.ReadCloser, b *Blob, diff v1.Hash) (*verified, error) {
	v := &verified{outer: sha256.New(), inner: sha256.New(), blob: b, diff: diff, in: from}
	in := io.Reader(from)
	if b.Size >= 0 {
		in = io.LimitReader(in, b.Size+1)
	}
	v.raw = io.TeeReader(in, &counter{v.outer, &v.size})
	tar, err := Decompress(v.raw)
	if err != nil {
		return nil, fmt.Errorf("it cannot be decompressed: %w", err)
	}
	v.tar = tar
	out, stop := ahead(tar)
	v.out, v.stop = io.TeeReader(out, v.inner), stop
	return v, nil
}

type counter struct {
	io.Writer
	n *int64
}

func (c *counter) Write(b []byte) (int, error) {
	*c.n += int64(len(b))
	return c.Writer.Write(b)
}

func (v *verified) Read(b []byte) (int, error) { return v.out.Read(b) }

// finish reads what is behind the end of the tar, closes all, and reports what is not as
// promised.
func (v *verified) finish(err error) error {
	if err == nil {
		var n int64
		if n, err = io.CopyN(io.Discard, v.out, maxBehind+1); errors.Is(err, io.EOF) {
			err = nil
		} else if n > maxBehind {
			err = invalid("has a layer with more than %d bytes behind the end of its files", maxBehind)
		}
	}
	if err != nil { // so that nobody waits for more
		err = errors.Join(err, v.in.Close())
	}
	v.stop()
	if err == nil {
		_, err = io.Copy(io.Discard, v.raw) // behind the end of what is compressed
		err = errors.Join(err, v.in.Close())
	}
	err = errors.Join(err, v.tar.Close())
	if v.blob.Size >= 0 && v.size > v.blob.Size {
		return invalid("has a layer of more than the %d bytes that were promised", v.blob.Size)
	}
	if err != nil {
		return err
	}
	got := v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", v.outer.Sum(nil))}
	switch {
	case v.blob.Size >= 0 && v.size != v.blob.Size:
		return invalid("has a layer of %d bytes; %d were promised", v.size, v.blob.Size)
	case v.blob.Digest.Hex != "" && got != v.blob.Digest:
		return invalid("has a layer with the digest %s; %s was promised", got, v.blob.Digest)
	}
	if got.Hex = fmt.Sprintf("%x", v.inner.Sum(nil)); got != v.diff {
		return invalid("has a layer whose content has the digest %s; its configuration says %s", got, v.diff)
	}
	return nil
}

// settings notes what the programs of an image get, and makes the working directory if the
// image has none, as a container engine does at each start.
func (g *adding) settings(c *v1.Config) error {
	run := &g.m.Run
	run.Env = map[string]string{}
	for _, kv := range c.Env {
		k, v, ok := strings.Cut(kv, "=")
		if ok && k != "" {
			run.Env[k] = v
		}
	}
	if err := driver.CheckEnv("image", run.Env); err != nil {
		return err
	}
	chain, err := g.s.cfg.Layers.Chain(g.m.Top)
	if err != nil {
		return err
	}
	view, err := unpack.OpenView(chain.Dirs)
	if err != nil {
		return err
	}
	defer view.Close()
	run.User = UserOf(view, c.User)
	run.Dir = path.Clean("/" + c.WorkingDir)
	if len(run.Dir) > driver.MaxPath {
		return invalid("has a working directory of %d bytes; the limit is %d", len(run.Dir), driver.MaxPath)
	}
	if view.IsDir(run.Dir) {
		return nil
	}
	key := fmt.Sprintf("image dir %s %q", g.m.Top, run.Dir)
	id, err := g.s.once(g.ctx, key, g.by, func() (layer.ID, error) {
		meta := layer.Meta{Parent: g.m.Top, Whole: true, Key: key, By: g.by}
		return g.s.cfg.Layers.Unpack(meta, func(dir string, below []string) (_, _ int64, err error) {
			return 0, 0, unpack.MakeDir(g.ctx, dir, below, run.Dir)
		})
	})
	if err != nil {
		return fmt.Errorf("working directory of the image: %w", err)
	}
	g.swap(id)
	return nil
}

// enlist writes the record of an image, whose layers are held. Its names are its own then; who
// is not the owner takes none from an image that is not public.
func (s *Store) enlist(m *image, owner bool) (driver.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !owner {
		m.Names = slices.DeleteFunc(slices.Clone(m.Names), func(n string) bool { return s.kept(n, m.ID) })
	}
	m.Added = time.Now().UTC()
	m.used = m.Added
	before := s.images[m.ID]
	if before != nil {
		for _, n := range before.Names {
			if !slices.Contains(m.Names, n) {
				m.Names = append(slices.Clone(m.Names), n)
			}
		}
		m.Digest = cmpOr(m.Digest, before.Digest)
		m.Fetched = m.Fetched && before.Fetched
		m.Public = slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Public, before.Public))))
		if m.Left == (unpack.Left{}) {
			m.Left = before.Left // what was said when its layers were unpacked
		}
	}
	if err := s.cfg.Layers.Hold(m.Top, holder(m.ID)); err != nil {
		return driver.Image{}, err
	}
	if err := s.write(m); err != nil {
		if before == nil || before.Top != m.Top {
			s.cfg.Layers.Release(m.Top, holder(m.ID))
		}
		return driver.Image{}, err
	}
	if before != nil && before.Top != m.Top {
		s.cfg.Layers.Release(before.Top, holder(m.ID))
	}
	s.images[m.ID] = m
	for id, o := range s.images {
		left := slices.DeleteFunc(slices.Clone(o.Names), func(n string) bool { return o != m && slices.Contains(m.Names, n) })
		if len(left) == len(o.Names) {
			continue
		}
		next := *o
		next.Names = left
		s.images[id] = &next
		if err := s.write(&next); err != nil { // Open gives the name to the later one, too
			s.log.Warn("image keeps a name on the disk that is another's", slog.String("id", id.String()), slog.Any("err", err))
		}
	}
	return m.info(), nil
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// SpoolFile makes a file of the store for an archive that is being read. Whoever gets it
// removes it.
func (s *Store) SpoolFile() (*os.File, error) {
	return os.CreateTemp(s.Spool(), "archive-")
}

// Room reports how many bytes the disk has for an image; 0: not known.
func (s *Store) Room() int64 {
	if s.cfg.Room == nil {
		return 0
	}
	return s.cfg.Room()
}
