package oci

import (
	"crypto/rand"
	"maps"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1"
)

// Parts are what an archive of an image is made of.
type Parts struct {
	// Config without the layers, whose digests are those of other tars than the image came in.
	Config v1.ConfigFile
	Names  []string // as people write them
	Dirs   []string // of its layers, lowest first
}

// Parts returns those of an image, whose layers are held until release. By a name it has that
// name alone, by its ID all of them.
func (s *Store) Parts(key string) (p Parts, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(key)
	if err != nil {
		return p, nil, err
	}
	p.Names = m.info().Names
	if ref, err := ParseReference(key); err == nil && slices.Contains(m.Names, ref.String()) {
		p.Names = []string{ref.Short()}
	}
	c := &p.Config
	c.OS, c.Architecture, c.Created.Time, c.RootFS.Type = Own().OS, Own().Architecture, m.Made, "layers"
	if of, err := v1.ParsePlatform(m.Platform); err == nil && m.Platform != "" {
		c.OS, c.Architecture, c.Variant = of.OS, of.Architecture, of.Variant
	}
	c.Config = v1.Config{User: m.Run.User, WorkingDir: m.Run.Dir, Entrypoint: m.Entry, Cmd: m.Cmd, Shell: m.Shell, OnBuild: m.OnBuild,
		Labels: m.Labels, StopSignal: m.Stop, Healthcheck: m.Health, ExposedPorts: setOf(m.Ports), Volumes: setOf(m.Volumes)}
	for _, name := range slices.Sorted(maps.Keys(m.Run.Env)) {
		c.Config.Env = append(c.Config.Env, name+"="+m.Run.Env[name])
	}
	chain, err := s.cfg.Layers.Chain(m.Top)
	if err != nil {
		return p, nil, err
	}
	slices.Reverse(chain.Dirs)
	p.Dirs = chain.Dirs[:len(m.Layers)] // without what the store has put on top: see settings
	by := "export " + rand.Text()
	return p, func() { s.cfg.Layers.Release(m.Top, by) }, s.cfg.Layers.Hold(m.Top, by)
}

func setOf(list []string) map[string]struct{} {
	set := map[string]struct{}{}
	for _, s := range list {
		set[s] = struct{}{}
	}
	return set
}
