package tend_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// until takes events until one has a kind and path.
func until(t testing.TB, w *tend.FileWatcher, kind tend.FileEventKind, path string) tend.FileEvent {
	t.Helper()
	for {
		ev, err := w.Next()
		if err != nil {
			t.Fatalf("%s of %s: %v", kind, path, err)
		}
		if ev.Kind == kind && ev.Path == path {
			return ev
		}
	}
}

func TestAWatchOfFilesReportsChanges(t *testing.T) {
	t.Parallel()
	f := withMachine(t, nil).Files()
	dir := filepath.Join(t.TempDir(), "watched")
	if _, err := f.Watch(t.Context(), dir, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of what is not there: %v", err)
	}
	if _, err := f.Watch(t.Context(), "", false); err == nil || !strings.Contains(err.Error(), "path has 0 bytes") {
		t.Errorf("no path: %v", err)
	}
	proctest.Must(t, os.Mkdir(dir, 0o755))
	w := proctest.Value(f.Watch(t.Context(), dir, true))(t)
	defer w.Close()
	proctest.Must(t, f.WriteFile(t.Context(), filepath.Join(dir, "a"), []byte("x")))
	until(t, w, tend.FileCreated, "a")
	until(t, w, tend.FileWritten, "a")
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "new"), 0o755))
	if ev := until(t, w, tend.FileCreated, "new"); !ev.Dir {
		t.Errorf("a directory: %+v", ev)
	}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "new", "b"), nil, 0o600))
	until(t, w, tend.FileCreated, "new/b")
	proctest.Must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")))
	until(t, w, tend.FileRenamed, "a")
	until(t, w, tend.FileCreated, "c")
	proctest.Must(t, os.Chmod(filepath.Join(dir, "c"), 0o640))
	until(t, w, tend.FileChmod, "c")
	proctest.Must(t, os.RemoveAll(dir))
	until(t, w, tend.FileRemoved, ".")
	for range 2 {
		if _, err := w.Next(); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, process.ErrLagged) {
			t.Errorf("a directory that is gone: %v", err)
		}
	}
}

func TestAWatchOfFilesSaysThatChangesAreMissing(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	m := testkeeper.New(t)
	srv := serveFace(t, native.Config{Manager: m, Machine: host.NewMachine(m)}, stopping, nil)
	f := dial(t, srv.URL, tend.Options{HTTP1: true}).Files()
	dir := t.TempDir()
	lagged := proctest.Value(f.Watch(t.Context(), dir, false))(t)
	defer lagged.Close()
	away := proctest.Value(f.Watch(t.Context(), t.TempDir(), false))(t)
	defer away.Close()
	// Nobody takes them: more than the connection and the server keep together.
	names := []string{filepath.Join(dir, strings.Repeat("a", 250)), filepath.Join(dir, strings.Repeat("b", 250))}
	for n := range 150_000 {
		if n < len(names) {
			proctest.Must(t, os.WriteFile(names[n], nil, 0o600))
		}
		proctest.Must(t, os.Chmod(names[n%2], 0o600))
	}
	var err error
	n := 0
	for ; err == nil; n++ {
		_, err = lagged.Next()
	}
	if !errors.Is(err, process.ErrLagged) || !strings.Contains(err.Error(), "faster than they were read") {
		t.Errorf("after %d events: %v", n, err)
	}
	close(stopping)
	if _, err := away.Next(); !errors.Is(err, process.ErrLagged) {
		t.Errorf("a server that goes away: %v", err)
	}
}

func TestAWatchOfFilesEnds(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var cut func()
	c := withMachine(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/Watch") {
				ctx, cancel := context.WithCancel(r.Context())
				mu.Lock()
				cut = cancel
				mu.Unlock()
				next.ServeHTTP(w, r.WithContext(ctx))
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	f := c.Files()
	lost := proctest.Value(f.Watch(t.Context(), t.TempDir(), false))(t)
	mu.Lock()
	cut()
	mu.Unlock()
	if _, err := lost.Next(); !errors.Is(err, process.ErrLagged) || !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("a lost connection: %v", err)
	}
	closed := proctest.Value(f.Watch(t.Context(), t.TempDir(), false))(t)
	go closed.Close()
	if _, err := closed.Next(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("closed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := proctest.Value(f.Watch(ctx, t.TempDir(), false))(t)
	cancel()
	if _, err := ended.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("its context ended: %v", err)
	}
}
