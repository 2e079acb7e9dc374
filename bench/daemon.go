//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// daemon is a daemon under measurement.
type daemon struct {
	url  string
	addr string // of url
	dir  string // of a daemon of our own, else ""
	// ready is how long it took from the start to the first answer.
	ready time.Duration
	sdk   *tend.Client
	own   *testdaemon.Daemon // or nil
}

// serve starts a daemon, with its files below base or where temporary ones are, and returns when it answers /health.
func serve(ctx context.Context, binary, base string) (*daemon, error) {
	dir, err := os.MkdirTemp(base, "tend-bench-")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	start := time.Now()
	d.own, err = testdaemon.Start(testdaemon.Config{Command: []string{binary}, Dir: dir, Flags: []string{"--distant", "127.0.0.1:0"}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.url, d.addr = d.own.URL, d.own.Addr()
	if err = d.health(ctx); err == nil {
		d.ready = time.Since(start)
		d.sdk, err = tend.Dial(ctx, d.url, tend.Options{})
	}
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
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
	return caught(func() {
		c := dial(ctx, d.addr)
		defer c.Close()
		if resp := c.call("GET", "/health", "", nil); resp.StatusCode != http.StatusNoContent {
			fail("GET /health: %s", resp.Status)
		}
	})
}

// stop ends the daemon and its processes, and removes its files.
func (d *daemon) stop() error {
	if d.sdk != nil {
		d.sdk.Close()
	}
	if d.own == nil {
		return nil
	}
	err := d.own.Stop()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, d.own.Log())
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
