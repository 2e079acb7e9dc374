//go:build linux

package testdaemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// Roles of a daemon.
const (
	Anchor   = "anchor"
	Keeper   = "keeper"
	Server   = "server"
	Launcher = "launcher"
)

// patience bounds waits for what must happen, however loaded the machine is.
const patience = 2 * time.Minute

// Config of a daemon.
type Config struct {
	// Command is the path of tend, behind what is to execute it, if anything.
	Command []string
	// Dir holds the state, the log and the URL. It is made if it is missing.
	Dir string
	// Flags of `tend serve` besides --listen, --socket, --state-dir and --port-file.
	Flags []string
	// Env is the environment; nil: that of the caller.
	Env []string
	// Start starts the command, in place of its method of that name.
	Start func(*exec.Cmd) error
}

// Daemon is a running `tend serve`. It listens on a free port of 127.0.0.1 alone.
type Daemon struct {
	URL string // http://127.0.0.1:PORT

	cfg     Config
	cmd     *exec.Cmd
	release func() // of the lifeline
}

// Start starts a daemon and returns when it serves.
func Start(cfg Config) (*Daemon, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	d := &Daemon{cfg: cfg}
	return d, d.start("127.0.0.1:0")
}

func (d *Daemon) start(listen string) error {
	f, err := os.OpenFile(d.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	port := filepath.Join(d.cfg.Dir, "url")
	os.Remove(port)
	argv := append(append([]string{}, d.cfg.Command...), "serve", "--listen", listen, "--socket", "none", "--state-dir",
		d.StateDir(), "--port-file", port)
	argv = append(argv, d.cfg.Flags...)
	d.cmd = exec.Command(argv[0], argv[1:]...)
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.Env = f, f, d.cfg.Env
	d.cmd.Env = append(d.cmd.Environ(), d.mark())
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	start := d.cfg.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(d.cmd); err != nil {
		return err
	}
	d.release = func() {}
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Microsecond) {
		if b, err := os.ReadFile(port); err == nil && len(bytes.TrimSpace(b)) > 0 {
			d.URL = strings.TrimSpace(string(b))
			break
		}
		if d.ended() || time.Now().After(end) {
			d.kill()
			return fmt.Errorf("tend serve does not serve: %v; its log:\n%s", d.cmd.ProcessState, d.Log())
		}
	}
	release, err := lifeline(d.cmd.Process.Pid) // last: starts are measured
	if err != nil {
		d.kill()
		return err
	}
	d.release = release
	return nil
}

// ended reports whether the launcher is a zombie.
func (d *Daemon) ended() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, d.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// kill ends the launcher and whatever keeps it alive.
func (d *Daemon) kill() {
	d.cmd.Process.Kill()
	d.cmd.Wait() // it did not end well
	d.release()
}

// Addr is HOST:PORT of the URL.
func (d *Daemon) Addr() string { return strings.TrimPrefix(d.URL, "http://") }

// Dir is where state and log are.
func (d *Daemon) Dir() string { return d.cfg.Dir }

// StateDir of the daemon.
func (d *Daemon) StateDir() string { return StateDir(d.cfg.Dir) }

// StateDir of a daemon whose Config has this Dir.
func StateDir(dir string) string { return filepath.Join(dir, "state") }

func (d *Daemon) logFile() string { return filepath.Join(d.cfg.Dir, "log") }

// Log is what the roles have written.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Dial returns a client that does not give up while roles die, even at the
// first connection. Options without Retry get one that is quick and long.
func (d *Daemon) Dial(ctx context.Context, opts tend.Options) (*tend.Client, error) {
	return Dial(ctx, d.URL, opts)
}

// Dial is Daemon.Dial for any URL.
func Dial(ctx context.Context, url string, opts tend.Options) (*tend.Client, error) {
	if opts.Retry == (tend.Retry{}) {
		opts.Retry = tend.Retry{First: 5 * time.Millisecond, Max: 100 * time.Millisecond, Attempts: 2000}
	}
	for start := time.Now(); ; time.Sleep(backoff.Next(start)) {
		c, err := tend.Dial(ctx, url, opts)
		if err == nil || !errors.Is(err, process.ErrUnavailable) || ctx.Err() != nil {
			return c, err
		}
	}
}

// Stop ends the daemon as a person does. It is an error if the daemon ends with
// a status, or leaves a process behind.
func (d *Daemon) Stop() error {
	defer d.release()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("tend serve had ended before: %w", err)
	}
	timer := time.AfterFunc(patience, func() { d.cmd.Process.Kill() })
	defer timer.Stop()
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("tend serve ended with %w", err)
	}
	for start := time.Now(); ; time.Sleep(backoff.Next(start)) {
		left := d.left()
		if len(left) == 0 {
			return nil
		}
		if time.Since(start) > patience {
			return fmt.Errorf("tend serve left processes behind: %s", strings.Join(left, ", "))
		}
	}
}

// mark is in the environment of all roles and, by inheritance, of what they start.
func (d *Daemon) mark() string { return "TEND_TEST_DAEMON=" + d.cfg.Dir }

// left lists what still runs of the daemon: what has its mark or its directory.
func (d *Daemon) left() (left []string) {
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range pids {
		env, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		if bytes.Contains(env, []byte(d.mark()+"\x00")) || cwd == d.cfg.Dir {
			line, _ := os.ReadFile(p + "/cmdline")
			left = append(left, filepath.Base(p)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return left
}
