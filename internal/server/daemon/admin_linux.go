package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/server/metrics"
	"github.com/tend-run/tend/internal/server/parts"
	"github.com/tend-run/tend/process"
)

// admin implements native.Admin: it answers for the whole daemon.
type admin struct {
	version, url, stateDir string
	manager                *client.Manager
	sync                   process.Sync // of processes without a choice of their own
	roles                  *roles
	parts                  *parts.Set // set before it is asked
	log                    *slog.Logger
}

// Status implements native.Admin.
func (a *admin) Status(ctx context.Context) (*tendv1.StatusResponse, error) {
	live, err := a.manager.List(ctx, process.Filter{Live: true})
	if err != nil {
		return nil, err
	}
	roles, err := a.pids()
	if err != nil {
		return nil, err
	}
	out := &tendv1.StatusResponse{
		Version: a.version, Url: a.url, StateDir: a.stateDir,
		Processes: int64(len(live)), Roles: roles,
		Promises: make(map[string]*tendv1.Promise),
	}
	for _, p := range powerLoss(promises(a.manager.Facts()), a.sync) {
		out.Promises[p.name] = &tendv1.Promise{Kept: p.kept, Detail: p.detail}
	}
	out.Parts = make(map[string]*tendv1.PartStatus)
	for name, facts := range a.parts.Status(ctx) {
		out.Parts[name] = &tendv1.PartStatus{Facts: facts}
	}
	return out, nil
}

func (a *admin) pids() (map[string]*tendv1.Role, error) {
	a.roles.settle()
	r, err := a.roles.get()
	if err != nil { // the anchor does not answer
		return nil, fmt.Errorf("ask for the roles: %w: %w", process.ErrUnavailable, err)
	}
	return map[string]*tendv1.Role{
		"anchor": {Pid: int64(r.anchor.PID)}, "keeper": {Pid: int64(r.keeper.PID)}, "server": {Pid: int64(r.server.PID)},
	}, nil
}

// Upgrade implements native.Admin. The new server takes over after the answer.
func (a *admin) Upgrade(ctx context.Context, req *tendv1.UpgradeRequest) (*tendv1.UpgradeResponse, error) {
	what := upgrade{server: req.GetServer(), keeper: req.GetKeeper(), binary: req.GetBinary()}
	if !what.server && !what.keeper {
		what.server, what.keeper = true, true
	}
	a.log.Info("upgrade asked for", "server", what.server, "keeper", what.keeper, "binary", what.binary)
	if err := a.roles.upgrade(ctx, what); err != nil {
		return nil, err
	}
	roles, err := a.pids()
	if err != nil {
		return nil, err
	}
	return &tendv1.UpgradeResponse{Roles: roles}, nil
}

// Shutdown implements native.Admin. The daemon ends after the answer.
func (a *admin) Shutdown(_ context.Context, keep bool) error {
	a.log.Info("shutdown asked for", "keep", keep)
	if err := a.roles.shutdown(keep); err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}

// metrics returns the roles for a scrape.
func (r *roles) metrics() map[string]metrics.Role {
	now, err := r.get()
	if err != nil {
		return nil
	}
	return map[string]metrics.Role{"anchor": now.anchor, "keeper": now.keeper, "server": now.server}
}

// finalTime bounds how long the last processes are asked for.
const finalTime = time.Second

// final reports whether the whole daemon ends with all processes: the keeper has ended
// and left none.
func (a *admin) final() bool {
	if now, err := a.roles.get(); err != nil || now.keeper.PID != 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), finalTime)
	defer cancel()
	live, err := a.manager.List(ctx, process.Filter{Live: true})
	return err == nil && len(live) == 0
}
