package local

import (
	"context"
	"fmt"
	"io/fs"
	"net"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// inside implements Root: the place that processes of a sandbox start in.
type inside struct{ s *sandbox }

var _ Root = inside{}

// Container implements Root.
func (in inside) Container() container.ID { return container.ID(in.s.id) }

// User implements Root.
func (in inside) User(name string) (files.User, error) { return in.s.account(name) }

// Look implements Root.
func (in inside) Look(ctx context.Context, u files.User, look func(stat func(path string) (fs.FileInfo, error))) error {
	r, err := in.s.openRoot()
	if err != nil {
		return err
	}
	return r.Look(ctx, u, look)
}

// account finds an account inside; "" is the sandbox's own.
func (s *sandbox) account(name string) (files.User, error) {
	r, err := s.openRoot()
	if err != nil {
		return files.User{}, err
	}
	if name == "" {
		s.mu.Lock()
		name = s.rec.User
		s.mu.Unlock()
	}
	return r.Account(name)
}

// openRoot returns the root directory of the container.
func (s *sandbox) openRoot() (*files.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root != nil {
		return s.root, nil
	}
	if s.container.PID == 0 {
		if err := s.usable(); err != nil && !s.hidden {
			return nil, err
		}
		return nil, driver.ErrStopped
	}
	r, err := openRoot(s.container, s.rec.UIDBase)
	if err != nil {
		return nil, fmt.Errorf("root of sandbox %s: %w", s.id, err)
	}
	s.root = r
	return r, nil
}

// forgetRoot lets the root directory go: one that is kept would keep the container's mounts.
func (s *sandbox) forgetRoot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root != nil {
		why := driver.ErrStopped
		if s.gone || s.rec.Destroying {
			why = driver.ErrNotFound
		}
		s.root.End(why)
		s.root = nil
	}
}

// User implements driver.Access.
func (s *sandbox) User(name string) (files.User, error) {
	u, err := s.account(name)
	if err != nil {
		return u, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.Dir != "" {
		u.Home = s.rec.Dir
	}
	return u, nil
}

// Files implements driver.Access.
func (s *sandbox) Files(user, dir string) (driver.Files, error) {
	return s.filesOf(user, files.FS{Workdir: dir})
}

// RootFiles implements driver.RootFiler.
func (s *sandbox) RootFiles(user, dir string) (driver.Files, error) {
	return s.filesOf(user, files.FS{Workdir: dir, AsRoot: true})
}

func (s *sandbox) filesOf(user string, f files.FS) (driver.Files, error) {
	s.Touch()
	var err error
	if f.User, err = s.User(user); err != nil {
		return nil, err
	}
	if f.Root, err = s.openRoot(); err == nil {
		err = f.Root.Check(f.User)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Dial implements driver.Access: it connects from inside, so a server that listens
// on the sandbox's loopback is reached.
func (s *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, &driver.InvalidError{Field: "port", Reason: fmt.Sprintf("is %d; 1 to 65535 are allowed", port)}
	}
	s.Touch()
	s.mu.Lock()
	err, b, mode := s.usable(), s.container, s.rec.Network
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if mode == driver.NetworkOwn {
		if !b.Network {
			return nil, refusedDial // no program has run yet
		}
		if err := s.network(ctx); err != nil {
			return nil, err
		}
	}
	return dial(ctx, b, port)
}
