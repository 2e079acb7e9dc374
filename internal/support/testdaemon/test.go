//go:build linux

package testdaemon

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/tend-run/tend/sdk/go"
)

// TB is what the functions for tests need of a *testing.T. The product has this
// package in it, and not package testing.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Error(args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Serve starts a daemon for one test, which fails if the daemon does not end
// well. Without a Dir it gets one, below a short path and removed at the end.
func Serve(t TB, cfg Config) *Daemon {
	t.Helper()
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "tend-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		cfg.Dir = dir
	}
	d, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", d.Log())
		}
	})
	return d
}

// Connect dials for one test.
func (d *Daemon) Connect(t TB) *tend.Client {
	t.Helper()
	c, err := d.Dial(t.Context(), tend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Ask makes one HTTP request of the daemon. Header has names and values in turn.
func (d *Daemon) Ask(t TB, method, path, body string, header ...string) (status int, text string) {
	t.Helper()
	res, text := d.Answer(t, method, path, body, header...)
	return res.StatusCode, text
}

// Answer is Ask with the header of the answer. Its body is closed.
func (d *Daemon) Answer(t TB, method, path, body string, header ...string) (res *http.Response, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err = http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// Post is Ask for a POST of JSON.
func (d *Daemon) Post(t TB, path, body string) (status int, text string) {
	t.Helper()
	return d.Ask(t, http.MethodPost, path, body, "Content-Type", "application/json")
}
