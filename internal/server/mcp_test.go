package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// mcpCall is one call of a tool by MCP: the text of its answer, and the id of its first event.
func mcpCall(t *testing.T, s *served, method, event, tool, arguments string) (text string, failed bool, id string) {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
	if method == http.MethodGet {
		body = ""
	}
	req := proctest.Value(http.NewRequestWithContext(t.Context(), method, s.tcp+"/mcp", strings.NewReader(body)))(t)
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
	switch {
	case event == "lost": // nobody had the first one
		req.Header.Set("Tend-Again", "1")
	case event != "":
		req.Header.Set("Last-Event-Id", event)
	}
	res := proctest.Value(http.DefaultTransport.RoundTrip(req))(t)
	defer res.Body.Close()
	all := string(proctest.Value(io.ReadAll(res.Body))(t))
	for line := range strings.Lines(all) {
		line = strings.TrimSpace(line)
		if found, ok := strings.CutPrefix(line, "id: "); ok && id == "" {
			id = found
		}
		var m struct {
			Result *struct {
				Content []struct{ Text string }
				IsError bool
			}
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &m) == nil && m.Result != nil && len(m.Result.Content) == 1 {
			return m.Result.Content[0].Text, m.Result.IsError, id
		}
	}
	t.Fatalf("%s %s: %s %s", tool, arguments, res.Status, all)
	return "", false, ""
}

// TestServicesByMCP calls the tool for services in each way, and wrong.
func TestServicesByMCP(t *testing.T) {
	s := serve(t, nil)
	service := func(arguments string, want ...string) {
		t.Helper()
		text, failed, _ := mcpCall(t, s, "POST", "", "service", arguments)
		for _, w := range want {
			if failed || !strings.Contains(text, w) {
				t.Errorf("%s: %v %q; want %q", arguments, failed, text, w)
			}
		}
	}
	answers := func(arguments, want string) {
		t.Helper()
		proctest.Eventually(t, want, func() bool {
			text, _, _ := mcpCall(t, s, "POST", "", "service", arguments)
			return strings.Contains(text, want)
		})
	}
	until := func(want string) {
		t.Helper()
		answers(`{"action":"list"}`, want)
	}
	service(`{"action":"list"}`, "(none; tend up declares them)")
	file := proctest.Value(json.Marshal(map[string]any{"dir": t.TempDir(), "name": "tend.yaml", "env": map[string]string{"PATH": "/usr/bin:/bin"},
		"text": []byte("services:\n  web: {command: 'echo up $$; exec sleep 1000', stop: KILL}\n  db: {command: exec sleep 1000, stop: KILL}\n")}))(t)
	c := s.client(t, "h1", "tcp")
	if status, text := do(t, c, "POST", s.tcp+"/tend.v1.ServiceService/Apply", string(file), map[string]string{"Content-Type": "application/json"}); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	service(`{"action":"list"}`, "declared in ", "web idle", "db idle")
	service(`{"action":"logs","name":"web"}`, "web has not run yet")
	service(`{"action":"start","name":"web"}`, "web ")
	until("web running, ready")
	until("db idle")
	answers(`{"action":"logs","name":"web"}`, "up ") // it is ready before it has written
	service(`{"action":"start"}`, "db ")
	until("db running, ready")
	service(`{"action":"stop","name":"db"}`, "db ")
	until("db idle")
	for arguments, want := range map[string]string{
		`{"action":"fly"}`:                             `action is "fly"; list, start, stop, restart or logs`,
		`{"action":"restart"}`:                         "name is empty; name the service",
		`{"action":"restart","name":"none"}`:           "none",
		`{"action":"logs","name":"none"}`:              `name is "none", and there is no such service; list has them`,
		`{"action":"list","all":true}`:                 "service has action, max_tokens, name",
		`{"action":"stop","name":"` + long(300) + `"}`: "name has 300 bytes; the limit is 256",
	} {
		if text, failed, _ := mcpCall(t, s, "POST", "", "service", arguments); !failed || !strings.Contains(text, want) {
			t.Errorf("%.80s: %v %q; want %q", arguments, failed, text, want)
		}
	}
	// A restart whose answer was lost is not made again.
	run := func() int64 {
		t.Helper()
		_, text := do(t, c, "POST", s.tcp+"/tend.v1.ServiceService/List", "{}", map[string]string{"Content-Type": "application/json"})
		var m struct {
			Services []struct {
				Name  string
				Run   int64 `json:",string"`
				Ready bool
			}
		}
		proctest.Must(t, json.Unmarshal([]byte(text), &m))
		for _, one := range m.Services {
			if one.Name == "web" && one.Ready {
				return one.Run
			}
		}
		return 0
	}
	before := run()
	_, _, id := mcpCall(t, s, "POST", "", "service", `{"action":"restart","name":"web"}`)
	proctest.Eventually(t, "it is restarted", func() bool { return run() == before+1 })
	for range 2 {
		if text, failed, _ := mcpCall(t, s, "GET", id, "service", `{}`); failed || !strings.Contains(text, "web ") {
			t.Errorf("made again: %v %s", failed, text)
		}
	}
	if text, failed, _ := mcpCall(t, s, "POST", "lost", "service", `{"action":"restart","name":"web"}`); failed {
		t.Error(text)
	}
	proctest.Eventually(t, "a restart that was lost with its server is made", func() bool { return run() == before+2 })
	service(`{"action":"stop","name":"web"}`)
	until("web idle")
	if text, _, _ := mcpCall(t, s, "POST", "", "service", `{"action":"start","name":"web"}`); !strings.Contains(text, "web ") {
		t.Error(text)
	}
	proctest.Eventually(t, "one more run, for the start", func() bool { return run() > 0 })
	if got := run(); got != before+3 {
		t.Errorf("run %d; want %d: the repeated call restarted it", got, before+3)
	}
}

func long(n int) string { return strings.Repeat("x", n) }
