package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/launch"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/server/metrics"
)

// rolesName is the file in the state directory that counts starts of roles.
const rolesName = "roles.json"

// roles asks the anchor for the daemon's own processes and counts how often they
// changed. The count survives the server, which cannot see its own death, and starts
// again with each anchor.
type roles struct {
	stateDir string
	log      func(error)
	// inPlace makes the keeper go on as another program.
	inPlace func(ctx context.Context, path string) error

	mu   sync.Mutex
	seen roleCount // guarded by mu
}

// roleCount is the content of the file.
type roleCount struct {
	Anchor         int   `json:"anchor"` // pids
	Keeper         int   `json:"keeper"`
	Server         int   `json:"server"`
	KeeperRestarts int64 `json:"keeper_restarts"`
	ServerRestarts int64 `json:"server_restarts"`
}

// state is what the roles are at a moment.
type state struct{ anchor, keeper, server metrics.Role }

// openRoles reads the count and adds this start of the server to it.
func openRoles(stateDir string, log func(error), inPlace func(ctx context.Context, path string) error) (*roles, error) {
	r := &roles{stateDir: stateDir, log: log, inPlace: inPlace}
	data, err := atomicfile.Read(filepath.Join(stateDir, rolesName), 4<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, atomicfile.ErrNoFile): // a count is not worth failing for
	case err != nil:
		return nil, err
	case json.Unmarshal(data, &r.seen) != nil:
		r.seen = roleCount{}
	}
	_, err = r.get()
	return r, err
}

// get returns the roles as they are now. Between two anchors there is none.
func (r *roles) get() (state, error) {
	pids, err := r.ask(anchor.Dial)
	if errors.Is(err, anchor.ErrNotRunning) {
		pids, err = r.holders()
	}
	if err != nil {
		return state{}, err
	}
	// The server asks for itself: while it starts, the anchor may not have
	// noted it yet.
	count := r.note(pids.Anchor, pids.Keeper, os.Getpid())
	return state{
		anchor: metrics.Role{PID: pids.Anchor},
		keeper: metrics.Role{PID: pids.Keeper, Restarts: count.KeeperRestarts},
		server: metrics.Role{PID: os.Getpid(), Restarts: count.ServerRestarts},
	}, nil
}

// ask asks the anchor, which dial finds.
func (r *roles) ask(dial func(stateDir string) (*anchor.Client, error)) (anchor.Pids, error) {
	c, err := dial(r.stateDir)
	if err != nil {
		return anchor.Pids{}, err
	}
	defer c.Close()
	return c.Roles()
}

// holders are the roles without an anchor, by the locks that they hold.
func (r *roles) holders() (anchor.Pids, error) {
	run, err := rundir.Open(r.stateDir)
	if err != nil {
		return anchor.Pids{}, err
	}
	defer run.Close()
	return anchor.Pids{Keeper: run.Holder("keeper")}, nil
}

// settle waits, between two anchors, for the next one. If none comes, that is a fact of
// its own.
func (r *roles) settle() { _, _ = r.ask(anchor.Await) }

// pids are those of all roles, the launcher's too, as far as they are known: no service may
// be one of them.
func (r *roles) pids() []int {
	if _, err := r.get(); err != nil {
		r.log(fmt.Errorf("ask for the roles: %w", err)) // those of the last look count
	}
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	all := []int{os.Getpid(), seen.Anchor, seen.Keeper}
	if s, ok := procfs.ReadStat(seen.Anchor); ok {
		all = append(all, s.PPID)
	}
	return slices.DeleteFunc(all, func(pid int) bool { return pid <= 0 })
}

// note counts what changed since the last look.
func (r *roles) note(anchor, keeper, server int) roleCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.seen.next(anchor, keeper, server)
	if next != r.seen {
		r.seen = next
		if err := r.save(next); err != nil {
			r.log(fmt.Errorf("save the count of role restarts: %w", err))
		}
	}
	return next
}

func (r *roles) save(c roleCount) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return atomicfile.File(filepath.Join(r.stateDir, rolesName), data, 0o600)
}

// next is the rule of counting: a role with another pid was restarted, unless
// the anchor is another too, which begins a new count. A role without a pid is
// between two starts.
func (c roleCount) next(anchor, keeper, server int) roleCount {
	if c.Anchor != anchor && anchor != 0 {
		return roleCount{Anchor: anchor, Keeper: keeper, Server: server}
	}
	if keeper != 0 && keeper != c.Keeper {
		if c.Keeper != 0 {
			c.KeeperRestarts++
		}
		c.Keeper = keeper
	}
	if server != 0 && server != c.Server {
		if c.Server != 0 {
			c.ServerRestarts++
		}
		c.Server = server
	}
	return c
}

// shutdown begins the end of the daemon. The anchor asks this server
// to end while it still answers.
func (r *roles) shutdown(keep bool) error {
	c, err := anchor.Await(r.stateDir)
	if err != nil {
		return err
	}
	if keep {
		// Before this server is stopped, which can do nothing afterwards.
		if err := launch.EndLauncher(r.stateDir); err != nil {
			c.Close()
			return err
		}
	}
	go func() {
		defer c.Close()
		if err := c.Shutdown(keep); err != nil {
			r.log(fmt.Errorf("shut down: %w", err))
		}
	}()
	return nil
}
