//go:build linux

package testdaemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/sdk/go"
)

// Roles finds the living roles by the locks that they hold, so it works
// whatever else is dead.
func (d *Daemon) Roles() map[string]int {
	found := Holders(d.StateDir())
	found[Launcher] = d.cmd.Process.Pid
	return found
}

// Holders are the pids of anchor, keeper and server of any state directory; a
// role that nobody plays is missing.
func Holders(stateDir string) map[string]int {
	found := map[string]int{}
	for _, role := range []string{Anchor, Keeper, Server} {
		f, err := os.OpenFile(filepath.Join(stateDir, "run", role+".lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK && lock.Pid > 0 {
			found[role] = int(lock.Pid)
		}
		f.Close()
	}
	return found
}

// Settle waits until all roles are alive, for two minutes at most.
func (d *Daemon) Settle(ctx context.Context) bool {
	for start := time.Now(); ; time.Sleep(backoff.Next(start)) {
		roles := d.Roles()
		if roles[Anchor] > 0 && roles[Keeper] > 0 && roles[Server] > 0 {
			return true
		}
		if ctx.Err() != nil || time.Since(start) > patience {
			return false
		}
	}
}

// Replace kills a role with SIGKILL and returns when the server reports another
// in its place.
func (d *Daemon) Replace(ctx context.Context, role string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !d.Settle(ctx) {
		return fmt.Errorf("not all roles are there: %v", d.Roles())
	}
	before := d.Roles()[role]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s[%d]: %w", role, before, err)
	}
	return d.another(ctx, role, before)
}

// Upgrade upgrades roles and returns when the server reports others in their place: a
// server takes over after it has answered.
func (d *Daemon) Upgrade(ctx context.Context, u tend.Upgrade) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !d.Settle(ctx) {
		return fmt.Errorf("not all roles are there: %v", d.Roles())
	}
	before := d.Roles()[Server]
	c, err := d.Dial(ctx, tend.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Upgrade(ctx, u); err != nil {
		return err
	}
	if u.Keeper && !u.Server { // it has happened, and the pid stays
		return nil
	}
	return d.another(ctx, Server, before)
}

// another returns when the server reports another in the place of a role.
func (d *Daemon) another(ctx context.Context, role string, before int) error {
	c, err := d.Dial(ctx, tend.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	for start := time.Now(); ; time.Sleep(backoff.Next(start)) {
		st, err := c.Status(ctx)
		if err == nil && st.Roles[role] != 0 && st.Roles[role] != before {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no other %s came: %v, %w", role, d.Roles(), err)
		}
	}
}

// KillAll kills all roles, the launcher too, as a loss of power would: none has
// time to start another.
func (d *Daemon) KillAll() error {
	for range 2 { // one that was just being started is found the second time
		for _, pid := range d.Roles() {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && err != syscall.ESRCH {
				return err
			}
		}
	}
	for role, pid := range d.Roles() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill %s: %w", role, err)
		}
	}
	d.kill()
	for start := time.Now(); len(d.Roles()) > 1; time.Sleep(backoff.Next(start)) {
		if time.Since(start) > patience {
			return fmt.Errorf("roles outlive SIGKILL: %v", d.Roles())
		}
	}
	return nil
}

// KillLauncher kills the launcher alone.
func (d *Daemon) KillLauncher() { d.kill() }

// ServeAgain starts the daemon again, on the same state and address. A client
// that connected meanwhile may have been given the port, for a moment.
func (d *Daemon) ServeAgain() error {
	for start := time.Now(); ; time.Sleep(backoff.Next(start)) {
		err := d.start(d.Addr())
		if err == nil || !strings.HasSuffix(strings.TrimSpace(d.Log()), "bind: address already in use (choose another with --listen)") ||
			time.Since(start) > patience {
			return err
		}
	}
}
