package server

import (
	"context"
	"fmt"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

// status answers AdminService.Status.
func (s *Server) status(ctx context.Context) (*tendv1.StatusResponse, error) {
	live, err := s.cfg.Manager.List(ctx, process.Filter{Live: true})
	if err != nil {
		return nil, err
	}
	roles, err := s.roles()
	if err != nil {
		return nil, err
	}
	out := &tendv1.StatusResponse{
		Version: s.cfg.Version, Url: s.URL("tcp"), StateDir: s.cfg.StateDir,
		Processes: int64(len(live)), Roles: roles,
		Promises: make(map[string]*tendv1.Promise),
	}
	if s.cfg.Promises != nil {
		for _, p := range s.cfg.Promises() {
			out.Promises[p.Name] = &tendv1.Promise{Kept: p.Kept, Detail: p.Detail}
		}
	}
	return out, nil
}

func (s *Server) roles() (map[string]*tendv1.Role, error) {
	if s.cfg.Roles == nil {
		return map[string]*tendv1.Role{}, nil
	}
	r, err := s.cfg.Roles()
	if err != nil {
		// The anchor is between two starts: worth another try.
		return nil, fmt.Errorf("ask for the roles: %w: %w", process.ErrUnavailable, err)
	}
	return map[string]*tendv1.Role{
		"anchor": {Pid: int64(r.Anchor.PID)}, "keeper": {Pid: int64(r.Keeper.PID)}, "server": {Pid: int64(r.Server.PID)},
	}, nil
}

// errNoAnchor: this server was put together without the other roles.
var errNoAnchor = fmt.Errorf("this server runs without the other roles: %w", process.ErrUnsupported)

// upgrade answers AdminService.Upgrade. The new server takes over after the
// answer.
func (s *Server) upgrade(ctx context.Context, req *tendv1.UpgradeRequest) (*tendv1.UpgradeResponse, error) {
	if s.cfg.Upgrade == nil {
		return nil, errNoAnchor
	}
	what := Upgrade{Server: req.GetServer(), Keeper: req.GetKeeper(), Binary: req.GetBinary()}
	if !what.Server && !what.Keeper {
		what.Server, what.Keeper = true, true
	}
	s.log.Info("upgrade asked for", "server", what.Server, "keeper", what.Keeper, "binary", what.Binary)
	if err := s.cfg.Upgrade(ctx, what); err != nil {
		return nil, err
	}
	roles, err := s.roles()
	if err != nil {
		return nil, err
	}
	return &tendv1.UpgradeResponse{Roles: roles}, nil
}

// shutdown answers AdminService.Shutdown. The daemon ends after the answer.
func (s *Server) shutdown(_ context.Context, keep bool) error {
	if s.cfg.Shutdown == nil {
		return errNoAnchor
	}
	s.log.Info("shutdown asked for", "keep", keep)
	if err := s.cfg.Shutdown(keep); err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}
