package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestReports(t *testing.T) {
	g := open(t, t.TempDir(), "")
	key, other := g.key("a", Rules{}), g.key("b", Rules{})
	status := func() (string, any) {
		code, _, body := g.ask("GET", "/api/sandbox/status", key, "")
		var m map[string]any
		proctest.Must(t, json.Unmarshal([]byte(body), &m))
		if code != 200 || len(m) != 2 {
			t.Errorf("%d %s", code, body)
		}
		return m["status"].(string), m["errorMessage"]
	}
	report := func(body string) {
		t.Helper()
		if code, _, answer := g.ask("POST", "/api/sandbox/heal", key, body); code != 200 || strings.TrimSpace(answer) != `{"ok":true}` {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
	if s, msg := status(); s != "creating" || msg != nil {
		t.Errorf("at first: %s %v", s, msg)
	}
	report(`{"status":"healing","error":"is not shown"}`)
	if s, msg := status(); s != "healing" || msg != nil {
		t.Errorf("%s %v", s, msg)
	}
	report(`{"status":"broken"}`)
	if s, msg := status(); s != "broken" || msg != "Auto-heal failed" {
		t.Errorf("%s %v", s, msg)
	}
	report(`{"status":"broken","error":"` + strings.Repeat("é", maxError) + `","sequence":5}`)
	if _, msg := status(); len(msg.(string)) > maxError || !strings.HasPrefix(msg.(string), "éé") {
		t.Errorf("a long error has %d bytes", len(msg.(string)))
	}
	report(`{"status":"ready","sequence":6}`)
	report(`{"status":"healing","sequence":5}`) // late
	if s, _ := status(); s != "ready" {
		t.Errorf("a late report wins: %s", s)
	}
	g.clock.pass(stale)
	report(`{"status":"healing","sequence":1}`) // of one that counts again
	if s, _ := status(); s != "healing" {
		t.Errorf("a reporter that counts anew: %s", s)
	}
	if code, _, body := g.ask("GET", "/api/sandbox/status", other, ""); code != 200 || !strings.Contains(body, "creating") {
		t.Errorf("another key: %d %s", code, body)
	}
	if code, _, body := g.ask("POST", "/api/sandbox/retry", key, ""); code != 200 || !strings.Contains(body, `"creating"`) {
		t.Errorf("retry: %d %s", code, body)
	}
	if s, _ := status(); s != "creating" {
		t.Errorf("after a retry: %s", s)
	}
	// Another server knows what was reported.
	report(`{"status":"ready"}`)
	next := open(t, g.dir, "")
	if _, _, body := next.ask("GET", "/api/sandbox/status", key, ""); !strings.Contains(body, "ready") {
		t.Errorf("the next server: %s", body)
	}
}

// Who reports without an end is told to wait, and keeps the disk of nobody else busy. What is
// refused was not kept, and a minute later all is taken again.
func TestAFloodOfReportsIsBounded(t *testing.T) {
	g := open(t, t.TempDir(), "")
	key, other := g.key("a", Rules{}), g.key("b", Rules{})
	for n := range mostReports {
		path, body := "/api/sandbox/heal", fmt.Sprintf(`{"status":"healing","sequence":%d}`, n+1)
		if n%2 == 1 {
			path, body = "/api/sandbox/retry", ""
		}
		if code, _, answer := g.ask("POST", path, key, body); code != 200 {
			t.Fatalf("the report %d: %d %s", n+1, code, answer)
		}
	}
	for _, path := range []string{"heal", "retry"} {
		code, header, answer := g.ask("POST", "/api/sandbox/"+path, key, `{"status":"ready","sequence":100}`)
		if code != 429 || header.Get("Retry-After") != "1" || !strings.Contains(errorOf(answer), "later") {
			t.Errorf("%s: one too many: %d %v %s", path, code, header, answer)
		}
	}
	if code, _, body := g.ask("GET", "/api/sandbox/status", key, ""); code != 200 || strings.Contains(body, "ready") {
		t.Errorf("a report that was refused is known: %d %s", code, body)
	}
	if code, _, body := g.ask("POST", "/api/sandbox/heal", other, `{"status":"ready"}`); code != 200 {
		t.Errorf("another key: %d %s", code, body)
	}
	g.clock.pass(time.Minute)
	if code, _, body := g.ask("POST", "/api/sandbox/heal", key, `{"status":"ready","sequence":100}`); code != 200 {
		t.Errorf("a minute later: %d %s", code, body)
	}
}

func TestReportsThatAreRefused(t *testing.T) {
	g := open(t, t.TempDir(), "")
	key := g.key("a", Rules{})
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		says                    string
	}{
		{"POST", "heal", "", `{"status":"ready"}`, 401, "Missing authorization"},
		{"POST", "heal", "vk_no", `{"status":"ready"}`, 401, "Invalid token"},
		{"POST", "heal", key, `{"status":"fine"}`, 400, "Invalid status. Must be one of: healing, ready, broken"},
		{"POST", "heal", key, `{"status":7}`, 400, "Invalid status"},
		{"POST", "heal", key, `{}`, 400, "Invalid status"},
		{"POST", "heal", key, `[]`, 400, "JSON object"},
		{"POST", "heal", key, `{"status":"ready","sequence":-1}`, 400, "sequence"},
		{"POST", "heal", key, `{"status":"` + strings.Repeat("x", maxReport) + `"}`, 400, "bytes"},
		{"GET", "status", "", "", 401, "Missing authorization"},
		{"POST", "retry", "", "", 401, "Missing authorization"},
		{"GET", "extend", "", "", 401, "Missing authorization"},
		{"POST", "ready", key, "", 410, "heal"},
	} {
		if status, _, body := g.ask(c.method, "/api/sandbox/"+c.path, c.key, c.body); status != c.status || !strings.Contains(errorOf(body), c.says) {
			t.Errorf("%s %s: %d %s", c.path, c.body[:min(40, len(c.body))], status, body)
		}
	}
}

func TestUseOfAKeyExtendsItsSandbox(t *testing.T) {
	told := make(chan string, 10)
	c := &clock{at: time.Now()}
	f := proctest.Value(Open(Config{Dir: t.TempDir(), Now: c.now, Extend: func(_ context.Context, sandbox string) error {
		told <- sandbox
		return fmt.Errorf("not now")
	}}))(t)
	defer f.Close()
	_, bound, err := f.keys.create("a", Rules{Sandbox: "box-1"})
	proctest.Must(t, err)
	_, free, err := f.keys.create("b", Rules{})
	proctest.Must(t, err)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, f, nil))
	extend := func(key string) {
		req := httptest.NewRequest("GET", "/api/sandbox/extend", nil)
		req.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		if w.Code != 204 || w.Body.Len() != 0 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		f.wg.Wait()
	}
	extend(bound)
	extend(bound)
	extend(free)
	c.pass(extendEvery)
	extend(bound)
	if len(told) != 2 || <-told != "box-1" {
		t.Errorf("it was told %d times", len(told)+1)
	}
}

// The server that ends has little time, and a driver that hangs does not take it. A
// request that comes later tells nobody.
func TestTheGatewayClosesThoughASandboxIsNotTold(t *testing.T) {
	told, gone := make(chan struct{}, 2), make(chan error, 2)
	f := proctest.Value(Open(Config{Dir: t.TempDir(), Extend: func(ctx context.Context, _ string) error {
		told <- struct{}{}
		<-ctx.Done()
		gone <- context.Cause(ctx)
		return ctx.Err()
	}}))(t)
	for _, id := range []string{"a", "b"} {
		f.extend(&Key{ID: id, Rules: Rules{Sandbox: "box"}})
		if id == "a" {
			<-told
			proctest.Must(t, f.Close())
		}
	}
	f.wg.Wait()
	if err := <-gone; !errors.Is(err, context.Canceled) || len(told) != 0 {
		t.Errorf("it went on until %v, and %d more were told", err, len(told))
	}
}

// A list of keys reads what was reported once, however many there are, and so do those
// who ask for the status of one.
func TestReportsAreReadOnceForAllKeys(t *testing.T) {
	g := open(t, t.TempDir(), "")
	all := map[string]Report{}
	secret := ""
	for i := range 60 {
		secret = g.key(fmt.Sprintf("k%d", i), Rules{})
		key := proctest.Value(g.keys.find(secret))(t)
		all[key.ID] = Report{Status: "broken", Error: strings.Repeat("\x01", maxError), Time: g.clock.now()}
	}
	proctest.Must(t, os.WriteFile(filepath.Join(g.dir, "reports.json"), proctest.Value(json.Marshal(all))(t), 0o600))
	size := int64(proctest.Value(os.Stat(filepath.Join(g.dir, "reports.json")))(t).Size())
	if cost := int64(allocated(func() { proctest.Value(g.Keys())(t) })); cost > 10*size {
		t.Errorf("a list takes %d bytes for reports of %d", cost, size)
	}
	// A file that nobody has written for a while is not even read.
	settled := time.Now().Add(-time.Minute)
	proctest.Must(t, os.Chtimes(filepath.Join(g.dir, "reports.json"), settled, settled))
	g.ask("GET", "/api/sandbox/status", secret, "")
	if cost := int64(allocated(func() { g.ask("GET", "/api/sandbox/status", secret, "") })); cost > size/2 {
		t.Errorf("a status takes %d bytes for reports of %d", cost, size)
	}
	for _, k := range proctest.Value(g.Keys())(t) {
		if k.Report.Status != "broken" || k.Used.Requests != 0 {
			t.Errorf("%+v", k)
		}
	}
}

// allocated is how many bytes f takes from the heap.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
