package distant_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestWatchesAndSearchesOverRestarts(t *testing.T) {
	n := serveNative(t)
	c := n.connect()
	dir := t.TempDir()
	watch := c.Path("watch", dir)
	if m := one(t, c); m.Type != "ok" {
		t.Fatalf("%+v", m)
	}
	n.restart()
	changed := func(kind, path string) {
		t.Helper()
		m := one(t, c)
		got := map[string]string{}
		for _, f := range m.Fields {
			if s, err := f.Value.Str(); err == nil {
				got[f.Name] = s
			}
		}
		if m.Origin != watch || m.Type != "changed" || got["kind"] != kind || got["path"] != path {
			t.Errorf("%s %v, want %s of %s", m.Type, got, kind, path)
		}
	}
	changed("unknown", dir)
	path := filepath.Join(dir, "new")
	proctest.Must(t, os.WriteFile(path, nil, 0o600))
	changed("create", path)
	c.Path("unwatch", dir)
	if m := one(t, c); m.Type != "ok" {
		t.Fatalf("%+v", m)
	}
	n.restart()
	c.Send("version", 0, nil)
	if m := one(t, c); m.Type != "version" {
		t.Errorf("an unwatched path is told of: %+v", m)
	}
	// A search whose server dies is told as done, once.
	c.Send("search", 1, func(w wire.Writer) {
		w.Key("query").Object(3)
		w.Key("target").Str("contents")
		w.Key("condition").Object(2)
		w.Key("type").Str("regex")
		w.Key("value").Str("no such text at all")
		w.Key("paths").Array(1)
		w.Str("/usr")
	})
	m := one(t, c)
	if m.Type != "search_started" {
		t.Fatalf("%+v", m)
	}
	id := m.ID
	n.restart()
	if m := one(t, c); m.Type != "search_done" || m.ID != id {
		t.Errorf("%+v", m)
	}
	n.restart()
	c.Send("version", 0, nil)
	if m := one(t, c); m.Type != "version" {
		t.Errorf("%+v", m)
	}
}

// narrow keeps as little output as may be kept.
type narrow struct{ process.Manager }

func (r narrow) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	spec.Retention.Limit = process.MinRetention
	return r.Manager.Start(ctx, spec)
}

// TestNativeGap: a client that was away while retention freed what it lacks is
// told which bytes are gone, and gets the others.
func TestNativeGap(t *testing.T) {
	n := &native{t: t, manager: narrow{testkeeper.New(t)}, dir: filepath.Join(t.TempDir(), "sessions")}
	n.start()
	t.Cleanup(func() { n.stop() })
	c := n.connect()
	id := spawned(t, c, "sh -c 'printf begin; read x; head -c 1000000 /dev/zero; printf end'")
	if m := one(t, c); string(m.Data) != "begin" {
		t.Fatalf("%+v", m)
	}
	c.Cut()
	other := n.connect()
	other.Stdin(id, []byte("\n"))
	if m := one(t, other); m.Type != "ok" {
		t.Fatalf("%+v", m)
	}
	p := proctest.Value(n.manager.Get(t.Context(), process.Selector{Tag: "distant-" + uitoa(id)}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	var told string
	var rest []byte
	for {
		m := one(t, c)
		if m.Type == "error" {
			told += m.Kind + ": " + m.Description
		}
		rest = append(rest, m.Data...)
		if m.Type == "proc_done" {
			break
		}
	}
	if !strings.Contains(told, "unexpected_eof") || !strings.Contains(told, "were freed by retention") {
		t.Errorf("the gap was told as %q", told)
	}
	if len(rest) > 200_000 || !strings.HasSuffix(string(rest), "end") {
		t.Errorf("%d bytes came behind the gap", len(rest))
	}
}

func uitoa(n uint32) string {
	w := wire.NewJSON(nil)
	w.Uint(uint64(n))
	return string(w.Buffer())
}

func TestOldSessionsAreRemoved(t *testing.T) {
	n := serveNative(t)
	n.connect()
	n.stop()
	sessions := func() (count int) {
		entries := proctest.Value(os.ReadDir(n.dir))(t)
		for _, e := range entries {
			if e.IsDir() {
				count++
				old := time.Now().Add(-48 * time.Hour)
				logs := proctest.Value(filepath.Glob(filepath.Join(n.dir, e.Name(), "*")))(t)
				for _, l := range logs {
					proctest.Must(t, os.Chtimes(l, old, old))
				}
			}
		}
		return count
	}
	if got := sessions(); got != 1 {
		t.Fatalf("%d sessions are on disk, want 1", got)
	}
	server := proctest.Value(distant.NewNative(distant.NativeConfig{Face: newFace(t, n.manager), Dir: n.dir, Key: key}))(t)
	server.Close()
	if got := sessions(); got != 0 {
		t.Errorf("%d sessions are still there after two days", got)
	}
	n.start()
}
