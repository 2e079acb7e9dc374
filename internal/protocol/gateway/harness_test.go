package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
)

const realKey = "sk-real-0123456789"

// clock is a time that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// gate is a gateway that is served.
type gate struct {
	t *testing.T
	*Face
	url, dir string
	clock    *clock
}

// mostHeld is what the requests of a key may hold, in bytes.
const mostHeld = 128 << 20

// open serves a gateway whose providers are all at upstream.
func open(t *testing.T, dir, upstream string) *gate {
	t.Helper()
	g := &gate{t: t, dir: dir, clock: &clock{at: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}}
	path := ""
	if upstream != "" {
		path = filepath.Join(t.TempDir(), "providers.yaml")
		text := fmt.Sprintf("providers:\n  anthropic: {key: %[1]s, base_url: '%[2]s/v1'}\n  openai: {key: %[1]s, base_url: '%[2]s/v1'}\n  gemini: {key: %[1]s, base_url: '%[2]s/v1beta'}\n", realKey, upstream)
		proctest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	g.Face = proctest.Value(Open(Config{Dir: dir, Providers: path, Budget: budget.New(4 * mostHeld), Now: g.clock.now}))(t)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, g.Face, nil))
	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.Close(); g.Close() })
	g.url = s.URL
	return g
}

func (g *gate) key(name string, rules Rules) string {
	g.t.Helper()
	_, secret, err := g.keys.create(name, rules)
	proctest.Must(g.t, err)
	return secret
}

// ask sends a request, with a header for the key, and returns status, headers and body.
func (g *gate) ask(method, path, key, body string) (int, http.Header, string) {
	g.t.Helper()
	req := proctest.Value(http.NewRequest(method, g.url+path, strings.NewReader(body)))(g.t)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp := proctest.Value(http.DefaultClient.Do(req))(g.t)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header, string(proctest.Value(io.ReadAll(resp.Body))(g.t))
}

// errorOf is the error of an answer of the gateway's own.
func errorOf(body string) string {
	var m struct {
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(body), &m) != nil {
		return ""
	}
	return m.Error
}

// lines are those of today.
func (g *gate) lines() (all []Line) {
	g.t.Helper()
	data, err := os.ReadFile(g.ledger.path(g.clock.now().Format(dayForm)))
	if os.IsNotExist(err) {
		return nil
	}
	proctest.Must(g.t, err)
	for text := range strings.Lines(string(data)) {
		var l Line
		proctest.Must(g.t, json.Unmarshal([]byte(text), &l))
		all = append(all, l)
	}
	return all
}

// model starts the scripted model server, which takes the real key alone.
func model(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	file, addr := filepath.Join(dir, "script.json"), filepath.Join(dir, "addr")
	proctest.Must(t, testbin.Make(dir, testbin.Model))
	proctest.Must(t, os.WriteFile(file, []byte(script), 0o600))
	cmd := exec.Command(testbin.FakeLLM(dir), "-script", file, "-addr-file", addr, "-key", realKey)
	cmd.Stderr = os.Stderr
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	url := ""
	proctest.Eventually(t, "the model serves", func() bool {
		b, err := os.ReadFile(addr)
		url = strings.TrimSpace(string(b))
		return err == nil && url != ""
	})
	return url
}
