package cli

import (
	"context"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/shadow"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/heal/confine"
	"github.com/tend-run/tend/internal/sandbox/image"
)

// shadowOf makes what a command of a model runs in that is for a sandbox.
func shadowOf(at confine.Sandbox) (confine.Shadow, error) {
	blank := func(path string, bytes int64) error { return image.Make(context.Background(), path, bytes) }
	s, err := shadow.Make(at.StateDir, at.Scratch, container.ID(at.ID), blank)
	if err != nil {
		return nil, err
	}
	return inShadow{s}, nil
}

type inShadow struct{ *shadow.Shadow }

// User implements confine.Shadow.
func (s inShadow) User(name string) (confine.User, error) {
	dir, ids, err := s.Root()
	if err != nil {
		return confine.User{}, err
	}
	defer dir.Close()
	root, err := files.OpenRoot(dir, ids)
	if err != nil {
		return confine.User{}, err
	}
	defer root.Close()
	a, err := root.Account(name)
	if err != nil {
		return confine.User{}, err
	}
	u := confine.User{UID: uint32(a.UID), GID: uint32(a.GID)}
	for _, g := range a.Groups {
		u.Groups = append(u.Groups, uint32(g))
	}
	return u, nil
}

func (s inShadow) Run(p confine.Program) (int, error) { return s.Shadow.Run(shadow.Program(p)) }
