package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// Files in a state directory that the command line owns.
const (
	lockName = "start.lock" // held while "tend run" starts a daemon
	logName  = "daemon.log" // output of a daemon that "tend run" started
)

// startTimeout is how long a daemon may take until it serves. It takes some
// ten milliseconds; taking over thousands of processes takes longer.
const startTimeout = 20 * time.Second

// connectOrStart finds the daemon, or starts the user's own if none was named
// and none is there.
func (inv *invocation) connectOrStart(ctx context.Context) (*daemon, error) {
	d, err := inv.connectMachine(ctx)
	var none *noDaemonError
	if err == nil || !errors.As(err, &none) {
		return d, err
	}
	dir, err := inv.stateDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w (give another with --state-dir)", err)
	}
	if err := owned(dir); err != nil {
		return nil, err
	}
	unlock, err := atomicfile.Lock(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	defer unlock()
	// The program that held the lock before may have started it.
	if d, err := inv.connectMachine(ctx); err == nil || !errors.As(err, &none) {
		return d, err
	}
	return inv.startDaemon(ctx, dir)
}

// startDaemon starts "tend serve" for the state directory, apart from this
// terminal, and waits until it answers.
func (inv *invocation) startDaemon(ctx context.Context, dir string) (*daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	log, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	logStart, err := log.Seek(0, 2)
	if err != nil {
		return nil, err
	}
	args := []string{"--listen", "none", "--background"}
	if inv.flags.StateDir != "" {
		args = append(args, "--state-dir", dir)
	}
	launcher, exited, err := serveApart(log, args...)
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	done := inv.progress("starting the daemon")
	defer done()
	var last error
	for wait := 5 * time.Millisecond; ; wait = min(wait*2, 200*time.Millisecond) {
		select {
		case err := <-exited:
			return nil, daemonEnded(err, log, logStart)
		case <-ctx.Done():
			return nil, fmt.Errorf("the daemon was started (pid %d) but does not answer after %v (%v); its log is %s", launcher.Pid,
				startTimeout, last, log.Name())
		case <-time.After(wait):
		}
		// A role that cannot start is reported within a second, not at the timeout.
		if why := trouble(dir); why != "" {
			return nil, fmt.Errorf("the daemon was started (pid %d), and %s; its log is %s", launcher.Pid, why, log.Name())
		}
		var d *daemon
		try, over := context.WithTimeout(ctx, 2*time.Second)
		d, last = inv.connectMachine(try)
		over()
		if last == nil {
			d.started = true
			return d, nil
		}
	}
}

// serveApart starts "tend serve", apart from this terminal. exited gives how it has ended, and
// is closed then; it ends with the daemon or with this program, whichever is first.
func serveApart(log *os.File, args ...string) (launcher *os.Process, exited <-chan error, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(exe, append([]string{"serve"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, inheritable()
	cmd.Dir = "/" // it outlives this directory
	cmd.SysProcAttr = apart()
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); close(ended) }()
	return cmd.Process, ended, nil
}

// daemonEnded reports why a daemon did not start, in its own words.
func daemonEnded(err error, log *os.File, from int64) error {
	b, _ := io.ReadAll(io.NewSectionReader(log, from, math.MaxInt64-from)) // what can be read
	said := strings.TrimSpace(string(b))
	if len(said) > 2000 {
		said = "…" + said[len(said)-2000:]
	}
	if said == "" {
		return fmt.Errorf("the daemon did not start: %v; its log is %s", err, log.Name())
	}
	return fmt.Errorf("the daemon did not start (%v):\n%s", err, said)
}
