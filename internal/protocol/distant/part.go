package distant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/protocol/module"
)

// Service is the encrypted transport as a part of the server, on a listener of
// its own. Its sessions are in its directory: clients resume them with the next
// server.
type Service struct {
	// Config of the face behind it.
	Config Config
	// Dir keeps the key, the sessions, and the file "uri" with the URI, key
	// included, that clients connect to; its mode is 0600.
	Dir      string
	Listener net.Listener

	native atomic.Pointer[Native] // nil until Run has made it
}

var (
	_ module.Runner   = (*Service)(nil)
	_ module.Reporter = (*Service)(nil)
)

// Name implements [module.Part].
func (s *Service) Name() string { return "distant" }

// Status implements [module.Reporter].
func (s *Service) Status() map[string]string {
	connections, sessions := 0, 0
	if n := s.native.Load(); n != nil {
		n.mu.Lock()
		connections, sessions = n.open, len(n.sessions)
		n.mu.Unlock()
	}
	return map[string]string{"address": s.Listener.Addr().String(), "connections": strconv.Itoa(connections),
		"sessions": strconv.Itoa(sessions)}
}

// Run implements [module.Runner].
func (s *Service) Run(ctx context.Context) error {
	if err := s.serve(ctx); err != nil {
		return fmt.Errorf("serve distant on %s: %w", s.Listener.Addr(), err)
	}
	return nil
}

func (s *Service) serve(ctx context.Context) error {
	dir := filepath.Join(s.Dir, "sessions")
	key, err := LoadKey(dir)
	if err != nil {
		return err
	}
	f, err := New(s.Config)
	if err != nil {
		return err
	}
	native, err := NewNative(NativeConfig{Face: f, Dir: dir, Key: key})
	if err != nil {
		return err
	}
	s.native.Store(native)
	path := filepath.Join(s.Dir, "uri")
	if err := atomicfile.File(path, []byte(URI(s.Listener.Addr(), key)+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the URI: %w", err)
	}
	f.log.Info("distant ready", slog.String("addr", s.Listener.Addr().String()), slog.String("uri_file", path))
	err = native.Serve(ctx, s.Listener)
	return errors.Join(err, native.Close())
}
