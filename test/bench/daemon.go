//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend"
)

// build makes the binary as people get it; without make, as make would.
func build(ctx context.Context) (path string, remove func(), err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "tend-bench-bin-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, "tend")
	steps := [][]string{{"make", "--no-print-directory", "build"}, {"cp", "bin/tend", path}}
	if _, err := exec.LookPath("make"); err != nil {
		steps = [][]string{
			{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "internal/payload/tend-keeper", "./cmd/tend-keeper"},
			{"go", "build", "-trimpath", "-o", path, "./cmd/tend"},
		}
	}
	for _, argv := range steps {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			remove()
			return "", nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
		}
	}
	return path, remove, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("not inside the module: run it from the repository, with make bench")
	}
	return filepath.Dir(mod), nil
}

// daemon is a daemon under measurement.
type daemon struct {
	url  string
	addr string // of url
	// ready is how long it took from the start to the first answer.
	ready time.Duration
	sdk   *tend.Client

	// Of a daemon of our own.
	cmd *exec.Cmd
	dir string
	log *bytes.Buffer
}

// serve starts a daemon and returns when it answers /health.
func serve(ctx context.Context, binary string) (d *daemon, err error) {
	dir, err := os.MkdirTemp("", "tend-bench-")
	if err != nil {
		return nil, err
	}
	d = &daemon{dir: dir, log: new(bytes.Buffer)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", errors.Join(err, d.stop()), d.log)
		}
	}()
	portFile := filepath.Join(dir, "url")
	d.cmd = exec.Command(binary, "serve", "--listen", "127.0.0.1:0", "--distant", "127.0.0.1:0", "--port-file", portFile, "--state-dir", filepath.Join(dir, "state"))
	// A file, not a pipe: the roles inherit it and exec would wait for them.
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return d, err
	}
	defer logFile.Close()
	d.cmd.Stdout, d.cmd.Stderr = logFile, logFile
	start := time.Now()
	if err := d.cmd.Start(); err != nil {
		return d, err
	}
	for d.url == "" {
		if text, err := os.ReadFile(portFile); err == nil && len(text) > 0 {
			d.url = strings.TrimSpace(string(text))
			break
		}
		if time.Since(start) > 10*time.Second || ctx.Err() != nil {
			return d, errors.New("tend serve did not come up within 10 s")
		}
		time.Sleep(200 * time.Microsecond)
	}
	d.addr = strings.TrimPrefix(d.url, "http://")
	if err := d.health(ctx); err != nil {
		return d, err
	}
	d.ready = time.Since(start)
	d.sdk, err = tend.Dial(ctx, d.url, tend.Options{})
	return d, err
}

// attach uses a daemon that runs.
func attach(ctx context.Context, url string) (*daemon, error) {
	addr, ok := strings.CutPrefix(strings.TrimSuffix(url, "/"), "http://")
	if !ok {
		return nil, fmt.Errorf("-url %s: give http://HOST:PORT", url)
	}
	d := &daemon{url: url, addr: addr}
	if err := d.health(ctx); err != nil {
		return nil, err
	}
	var err error
	d.sdk, err = tend.Dial(ctx, d.url, tend.Options{})
	return d, err
}

func (d *daemon) health(ctx context.Context) error {
	c, err := dial(ctx, d.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	resp, err := c.call("GET", "/health", "", nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("GET /health: %s", resp.Status)
	}
	return nil
}

// stop ends the daemon and its processes, and removes its files.
func (d *daemon) stop() error {
	if d.sdk != nil {
		d.sdk.Close()
	}
	if d.cmd == nil {
		return nil
	}
	var err error
	if p := d.cmd.Process; p != nil {
		p.Signal(syscall.SIGTERM)
		// The launcher ends when the anchor is gone, and the anchor when the
		// processes are.
		timer := time.AfterFunc(20*time.Second, func() { p.Kill() })
		defer timer.Stop()
		if werr := d.cmd.Wait(); werr != nil {
			err = fmt.Errorf("tend serve: %w", werr)
		}
	}
	if text, rerr := os.ReadFile(filepath.Join(d.dir, "log")); rerr == nil {
		d.log.Write(text)
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
