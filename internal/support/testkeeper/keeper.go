//go:build linux

package testkeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/process"
)

// patience bounds waits for what must happen, however loaded the machine is.
const patience = 2 * time.Minute

// New starts the roles for one test and returns a manager over them.
func New(t testing.TB) process.Manager {
	t.Helper()
	m := Open(t, Start(t))
	t.Cleanup(func() { killAll(m) })
	return m
}

// Start starts the roles on a new state directory.
func Start(t testing.TB) (stateDir string) {
	t.Helper()
	program, err := program()
	if err != nil {
		t.Fatal(err)
	}
	// A short path, as a socket's name has to be.
	stateDir, err = os.MkdirTemp("", "tend-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(stateDir) })
	cmd := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), program.Fd()), "launcher", "--state-dir", stateDir)
	Run(t, stateDir, cmd, cmd.Start)
	return stateDir
}

// program is tend-keeper, built when the first test asks. It is executed from
// the open file, so that the directory of the build need not stay.
var program = sync.OnceValues(func() (*os.File, error) {
	dir, err := os.MkdirTemp("", "tend-bin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := testbin.Make(dir, testbin.Roles); err != nil {
		return nil, err
	}
	return os.Open(testbin.Roles.Keeper(dir))
})

// Run starts the roles on a state directory by the command of a launcher, which
// start is to start.
func Run(t testing.TB, stateDir string, cmd *exec.Cmd, start func() error) {
	t.Helper()
	NoServer(t, stateDir)
	var log buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM} // not to outlive a test that is killed
	cmd.Env = append(cmd.Environ(), mark(stateDir))
	if err := start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(stateDir, cmd, endTime); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the roles:\n%s", log.String())
		}
	})
}

// NoServer gives the roles a server that only waits: the test is the server.
func NoServer(t testing.TB, stateDir string) {
	t.Helper()
	run := filepath.Join(stateDir, "run")
	if err := errors.Join(os.MkdirAll(run, 0o700), os.WriteFile(filepath.Join(run, "server.argv"), []byte("/bin/sleep\x00infinity"),
		0o600)); err != nil {
		t.Fatal(err)
	}
}

// Open returns a manager on the state directory. It is closed at the end of the
// test; processes go on as long as the roles.
func Open(t testing.TB, stateDir string) *client.Manager {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := client.Open(ctx, client.Config{StateDir: stateDir, Environ: os.Environ(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// killAll kills what still runs. The roles would leave it time to end by itself.
func killAll(m process.Manager) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	live, err := m.List(ctx, process.Filter{Live: true})
	if err != nil {
		return // the test has ended the keeper; the launcher kills what is left
	}
	var wg sync.WaitGroup
	for _, in := range live {
		wg.Go(func() {
			if p, err := m.Get(ctx, process.Selector{ID: in.ID}); err == nil {
				_, _ = p.Kill(ctx) // as above
			}
		})
	}
	wg.Wait()
}

// buffer is a buffer that several may write to.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
