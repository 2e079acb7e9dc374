package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/tend-run/tend/internal/replace"

	"github.com/tend-run/tend/face/distant"
)

// distantURIName is the file in the state directory with the URI, key included,
// that distant's clients connect to. Its mode is 0600.
const distantURIName = "distant/uri"

// serveDistant serves distant's encrypted transport on a listener of its own,
// until ctx ends. Its sessions are in the state directory: clients resume them
// with the next server.
func (s *Server) serveDistant(ctx context.Context, l net.Listener) error {
	dir := filepath.Join(s.cfg.StateDir, "distant", "sessions")
	key, err := distant.LoadKey(dir)
	if err != nil {
		return err
	}
	f, err := distant.New(distant.Config{
		Manager: s.manager, Dir: s.cfg.DefaultWorkdir, User: s.cfg.DefaultUser, Version: s.cfg.Version, Log: s.log,
	})
	if err != nil {
		return err
	}
	native, err := distant.NewNative(distant.NativeConfig{Face: f, Dir: dir, Key: key})
	if err != nil {
		return err
	}
	path := filepath.Join(s.cfg.StateDir, distantURIName)
	if err := replace.File(path, []byte(distant.URI(l.Addr(), key)+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the URI: %w", err)
	}
	s.log.Info("distant ready", "addr", l.Addr().String(), "uri_file", path)
	err = native.Serve(ctx, l)
	if cerr := native.Close(); err == nil {
		err = cerr
	}
	return err
}
