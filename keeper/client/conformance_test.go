//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/poorkernel"
	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testbin"
	"github.com/tend-run/tend/keeper/client"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
)

// keeperBinary is the program of launcher, anchor and keeper, built once.
var keeperBinary string

func TestMain(m *testing.M) {
	poorkernel.Main(os.Environ())
	processtest.Main()
	os.Exit(testbin.Main(func(dir string) int {
		keeperBinary = testbin.Released.Keeper(dir)
		return m.Run()
	}, testbin.Released))
}

// TestConformance runs the suite on one real keeper.
func TestConformance(t *testing.T) {
	t.Parallel()
	manager := open(t, daemon(t))
	processtest.Run(t, func(*testing.T) process.Manager { return manager })
}

// daemon starts launcher, anchor and keeper on a new state directory and ends
// them with the test.
func daemon(t *testing.T) (stateDir string) {
	t.Helper()
	stateDir = shortDir(t)
	daemonOn(t, stateDir)
	return stateDir
}

// daemonOn starts them on an existing directory.
func daemonOn(t *testing.T, stateDir string) {
	t.Helper()
	cmd := exec.Command(keeperBinary, "launcher", "--state-dir", stateDir)
	roles(t, stateDir, cmd, cmd.Start)
}

// roles starts them by a command and ends them with the test.
func roles(t *testing.T, stateDir string, cmd *exec.Cmd, start func() error) {
	t.Helper()
	noServer(t, stateDir)
	var log syncBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM} // not to outlive a test that is killed
	scene.Must(t, start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the launcher ended with %v", err)
		}
		if t.Failed() {
			t.Logf("log of the roles:\n%s", log.String())
		}
	})
}

// noServer gives the roles a server that only waits: the test is the server.
func noServer(t *testing.T, stateDir string) {
	t.Helper()
	run := filepath.Join(stateDir, "run")
	scene.Must(t, errors.Join(os.MkdirAll(run, 0o700), os.WriteFile(filepath.Join(run, "server.argv"), []byte("/bin/sleep\x00infinity"), 0o600)))
}

// open returns a manager on the state directory.
func open(t *testing.T, stateDir string) *client.Manager {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := client.Open(ctx, client.Config{StateDir: stateDir, Environ: os.Environ(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// syncBuffer is a buffer that several may write to.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
