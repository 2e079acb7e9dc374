//go:build linux

package torture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend"
)

// Roles of a daemon that may be killed.
const (
	Anchor   = "anchor"
	Keeper   = "keeper"
	Server   = "server"
	Launcher = "launcher"
)

// Daemon is a running `tend serve`.
type Daemon struct {
	URL string
	dir string
	log string
	cmd *exec.Cmd

	program string
	env     []string
	release func() // of the lifeline
}

// Serve starts a daemon whose state and log are in dir. env is its environment.
func Serve(program, dir string, env ...string) (*Daemon, error) {
	d := &Daemon{dir: dir, log: filepath.Join(dir, "log"), program: program, env: env}
	return d, d.start(program, "127.0.0.1:0", env)
}

func (d *Daemon) start(program, listen string, env []string) error {
	f, err := os.OpenFile(d.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	port := filepath.Join(d.dir, "url")
	os.Remove(port)
	d.cmd = exec.Command(program, "serve", "--listen", listen, "--socket", "none", "--state-dir", d.StateDir(), "--port-file", port)
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.Env = f, f, env
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	if d.release, err = Lifeline(d.cmd.Process.Pid); err != nil {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		return err
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(port)
		if err == nil && len(bytes.TrimSpace(b)) > 0 {
			d.URL = strings.TrimSpace(string(b))
			return nil
		}
		if time.Now().After(end) {
			d.cmd.Process.Kill()
			d.cmd.Wait()
			return fmt.Errorf("the daemon does not serve; its log:\n%s", d.Log())
		}
	}
}

// StateDir of the daemon.
func (d *Daemon) StateDir() string { return filepath.Join(d.dir, "state") }

// Log is what the roles have written.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Stop ends the daemon in good order.
func (d *Daemon) Stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	defer d.release()
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("tend serve ended with %w", err)
	}
	return nil
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
	d.release()
	d.cmd.Wait() // it did not end well
	for end := time.Now().Add(settleTime); len(d.Roles()) > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("roles outlive SIGKILL: %v", d.Roles())
		}
	}
	return nil
}

// KillLauncher kills the launcher alone.
func (d *Daemon) KillLauncher() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return err
	}
	d.release()
	d.cmd.Wait() // it did not end well
	return nil
}

// ServeAgain starts the daemon again, on the same state and address.
func (d *Daemon) ServeAgain() error {
	return d.start(d.program, strings.TrimPrefix(d.URL, "http://"), d.env)
}

// patient clients do not give up while roles die.
var patient = tend.Options{Retry: tend.Retry{First: 5 * time.Millisecond, Max: 100 * time.Millisecond, Attempts: 2000}}

// shortSilence is after what silence clients whose connections are broken look
// for another one. The default of 45 s would leave no time to come to anything.
const shortSilence = 500 * time.Millisecond

// Dial returns a client that does not give up while roles die, even at the
// first connection.
func (d *Daemon) Dial(ctx context.Context) (*tend.Client, error) {
	return dial(ctx, d.URL, patient)
}

func dial(ctx context.Context, url string, opts tend.Options) (c *tend.Client, err error) {
	err = insist(ctx, func() error {
		c, err = tend.Dial(ctx, url, opts)
		return err
	})
	return c, err
}

// Roles finds the living roles by the locks that they hold, so that it works
// whatever else is dead.
func (d *Daemon) Roles() map[string]int {
	found := map[string]int{Launcher: d.cmd.Process.Pid}
	for _, role := range []string{Anchor, Keeper, Server} {
		f, err := os.OpenFile(filepath.Join(d.StateDir(), "run", role+".lock"), os.O_RDWR, 0)
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
