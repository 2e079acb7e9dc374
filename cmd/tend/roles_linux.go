package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"github.com/tend-run/tend/anchor"
	"github.com/tend-run/tend/internal/replace"
	"github.com/tend-run/tend/launch"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/server"
)

// rolesName is the file in the state directory that counts starts of roles.
const rolesName = "roles.json"

// localRoles asks the anchor for the daemon's own processes and counts how
// often they changed. The count outlives the server, which cannot see its own
// death, and begins anew with each anchor.
type localRoles struct {
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

// openRoles reads the count and adds this start of the server to it.
func openRoles(stateDir string, log func(error), inPlace func(ctx context.Context, path string) error) (*localRoles, error) {
	r := &localRoles{stateDir: stateDir, log: log, inPlace: inPlace}
	data, err := replace.Read(filepath.Join(stateDir, rolesName), 4<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, replace.ErrNoFile): // a count is not worth failing for
	case err != nil:
		return nil, err
	case json.Unmarshal(data, &r.seen) != nil:
		r.seen = roleCount{}
	}
	_, err = r.get()
	return r, err
}

// get returns the roles as they are now.
func (r *localRoles) get() (server.Roles, error) {
	c, err := anchor.Dial(r.stateDir)
	if err != nil {
		return server.Roles{}, err
	}
	defer c.Close()
	pids, err := c.Roles()
	if err != nil {
		return server.Roles{}, err
	}
	// The server asks for itself: while it starts, the anchor may not have
	// noted it yet.
	count := r.note(pids.Anchor, pids.Keeper, os.Getpid())
	return server.Roles{
		Anchor: server.Role{PID: pids.Anchor},
		Keeper: server.Role{PID: pids.Keeper, Restarts: count.KeeperRestarts},
		Server: server.Role{PID: os.Getpid(), Restarts: count.ServerRestarts},
	}, nil
}

// note counts what changed since the last look.
func (r *localRoles) note(anchor, keeper, server int) roleCount {
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

func (r *localRoles) save(c roleCount) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return replace.File(filepath.Join(r.stateDir, rolesName), data, 0o600)
}

// next is the rule of counting: a role with another pid was restarted, unless
// the anchor is another too, which begins a new count. A role without a pid is
// between two starts.
func (c roleCount) next(anchor, keeper, server int) roleCount {
	if c.Anchor != anchor {
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

// upgrade replaces parts of the daemon. The server's own end comes after this
// call has returned: its answer is sent while it drains.
func (r *localRoles) upgrade(ctx context.Context, what server.Upgrade) error {
	c, err := anchor.Dial(r.stateDir)
	if err != nil {
		return err
	}
	if err := r.upgradeKeeper(ctx, c, what); err != nil {
		c.Close()
		return err
	}
	if what.Server && what.Binary != "" {
		if err := setBinary(c, what.Binary); err != nil {
			c.Close()
			return err
		}
	}
	if !what.Server {
		c.Close()
		return nil
	}
	go func() {
		defer c.Close()
		// Asking for one's own end: the answer, if any, comes too late.
		if err := c.RestartServer(); err != nil && ctx.Err() == nil {
			r.log(fmt.Errorf("restart the server: %w", err))
		}
	}()
	return nil
}

// upgradeKeeper puts the keeper's program of the new binary into the run
// directory, where the anchor finds it too, and lets the keeper go on as it. A
// keeper that cannot is replaced; nothing is lost either way.
func (r *localRoles) upgradeKeeper(ctx context.Context, c *anchor.Client, what server.Upgrade) error {
	if !what.Keeper {
		return nil
	}
	binary := what.Binary
	if binary == "" {
		argv, err := c.Server()
		if err != nil || len(argv) == 0 {
			return fmt.Errorf("the program of the server is not known: %w", err)
		}
		binary = argv[0]
	}
	if err := checkBinary(binary); err != nil {
		return err
	}
	program, err := exec.CommandContext(ctx, binary, "payload").Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok && len(e.Stderr) > 0 {
			err = errors.New(strings.TrimSpace(string(e.Stderr)))
		}
		return notABinary(binary, fmt.Sprintf("does not give its keeper, as a tend does: %v", err))
	}
	// Any program may be called with any argument and end well.
	if !bytes.HasPrefix(program, []byte("\x7fELF")) && !bytes.HasPrefix(program, []byte("#!")) {
		return notABinary(binary, "does not give its keeper, as a tend does: what it writes is no program")
	}
	path := launch.KeeperProgram(r.stateDir)
	if err := renameio.WriteFile(path, program, 0o700); err != nil {
		return fmt.Errorf("install the keeper: %w", err)
	}
	if err = r.inPlace(ctx, path); err == nil {
		return nil
	}
	r.log(fmt.Errorf("the keeper did not go on in place, replacing it: %w", err))
	if err := c.RestartKeeper(); err != nil {
		return fmt.Errorf("restart the keeper: %w", err)
	}
	return nil
}

// checkBinary reports why a file cannot be executed.
func checkBinary(binary string) error {
	fi, err := os.Stat(binary)
	switch {
	case err != nil:
		return notABinary(binary, fmt.Sprintf("cannot be used as the new program: %v; give a file on the daemon's machine", err))
	case !filepath.IsAbs(binary), !fi.Mode().IsRegular(), fi.Mode()&0o111 == 0:
		return notABinary(binary, "is not the absolute path of an executable file")
	}
	return nil
}

func notABinary(path, reason string) error {
	return &process.InvalidError{Field: "binary", Reason: path + " " + reason}
}

// setBinary makes another program the server of the next start.
func setBinary(c *anchor.Client, binary string) error {
	if err := checkBinary(binary); err != nil {
		return err
	}
	argv, err := c.Server()
	if err != nil {
		return err
	}
	if len(argv) == 0 {
		return errors.New("the command line of the server is not known")
	}
	argv[0] = binary
	return c.SetServer(argv)
}

// shutdown begins the end of the daemon. This server is told to end while it
// still answers.
func (r *localRoles) shutdown(keep bool) error {
	c, err := anchor.Dial(r.stateDir)
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
