package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/launch"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/process"
)

// upgrade says which roles to replace.
type upgrade struct {
	server, keeper bool
	// binary is the new program; empty: the file that the running one was started from.
	binary string
}

// upgrade replaces parts of the daemon. The server's own end comes after this
// call has returned: its answer is sent while it drains.
func (r *roles) upgrade(ctx context.Context, what upgrade) error {
	c, err := anchor.Await(r.stateDir)
	if err != nil {
		return err
	}
	if err := r.upgradeKeeper(ctx, c, what); err != nil {
		c.Close()
		return err
	}
	if what.server && what.binary != "" {
		if err := setBinary(c, what.binary); err != nil {
			c.Close()
			return err
		}
	}
	if !what.server {
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

// inPlaceTime bounds how long a keeper may take to go on as another program. It gives up by
// itself after some seconds, unless it stands still.
const inPlaceTime = 20 * time.Second

// upgradeKeeper puts the keeper's program of the new binary into the run
// directory, where the anchor finds it too, and lets the keeper go on as it. A
// keeper that cannot is replaced; nothing is lost either way.
func (r *roles) upgradeKeeper(ctx context.Context, c *anchor.Client, what upgrade) error {
	if !what.keeper {
		return nil
	}
	binary := what.binary
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
	if err := atomicfile.Synced(path, program, 0o700); err != nil {
		return fmt.Errorf("install the keeper: %w", err)
	}
	was, unknown := c.Roles()
	// A caller that goes away is no reason to replace a keeper that is about to go on.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), inPlaceTime)
	defer cancel()
	if err = r.inPlace(bounded, path); err == nil {
		return nil
	}
	// Of several upgrades of a keeper that stands still, the first to give up replaces it. One
	// that has begun since is of the new program, and must not be replaced by the others.
	if now, err := c.Roles(); unknown == nil && err == nil && now.Keeper != was.Keeper {
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
