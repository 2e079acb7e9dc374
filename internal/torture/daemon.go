//go:build linux

package torture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

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
}

// Serve starts a daemon whose state and log are in dir. env is its environment.
func Serve(program, dir string, env ...string) (*Daemon, error) {
	d := &Daemon{dir: dir, log: filepath.Join(dir, "log")}
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
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("tend serve ended with %w", err)
	}
	return nil
}

// Dial returns a client that does not give up while roles die.
func (d *Daemon) Dial(ctx context.Context) (*tend.Client, error) {
	return tend.Dial(ctx, d.URL, tend.Options{Retry: tend.Retry{First: 5 * time.Millisecond, Max: 100 * time.Millisecond, Attempts: 2000}})
}

// Roles finds the living roles by the process table alone, so that it works
// whatever else is dead.
func (d *Daemon) Roles() map[string]int {
	type proc struct {
		pid, ppid int
		comm      string
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []proc
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		i, j := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if err != nil || i < 0 || j < i {
			continue
		}
		f := bytes.Fields(b[j+1:])
		if len(f) < 2 || f[0][0] == 'Z' || f[0][0] == 'X' {
			continue
		}
		ppid, _ := strconv.Atoi(string(f[1]))
		all = append(all, proc{pid, ppid, string(b[i+1 : j])})
	}
	launcher := d.cmd.Process.Pid
	found := map[string]int{Launcher: launcher}
	for _, p := range all {
		if p.ppid == launcher && p.comm == "tend-anchor" {
			found[Anchor] = p.pid
		}
	}
	for _, p := range all {
		if p.ppid != launcher && p.ppid != found[Anchor] {
			continue
		}
		switch p.comm {
		case "tend-keeper":
			found[Keeper] = p.pid
		case "tend":
			found[Server] = p.pid
		}
	}
	return found
}
