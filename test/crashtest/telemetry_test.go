//go:build linux

package crashtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tend-run/tend/internal/protocol/distant/distanttest"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// spans are what a collector has taken.
type spans struct {
	t   *testing.T
	mu  sync.Mutex
	all []*tracepb.Span // guarded by mu
}

// collect starts a collector, and returns the environment of a daemon that sends traces to it.
func collect(t *testing.T) (*spans, []string) {
	s := &spans{t: t}
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server was killed while it sent this
		}
		m := new(tracepb.TracesData)
		if err := proto.Unmarshal(body, m); err != nil || r.URL.Path != "/v1/traces" {
			t.Error(r.URL.Path, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, rs := range m.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				s.all = append(s.all, ss.Spans...)
			}
		}
	}))
	t.Cleanup(collector.Close)
	return s, append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_METRICS_EXPORTER=none")
}

// find waits for a span that is so.
func (s *spans) find(what string, ok func(*tracepb.Span) bool) (found *tracepb.Span) {
	s.t.Helper()
	proctest.Eventually(s.t, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, one := range s.all {
			if ok(one) {
				found = one
			}
		}
		return found != nil
	})
	return found
}

// TestASpanOutlivesTheServer: the server that has started a process is killed before that
// ends. The next one sends its span, below the request that started it, with the status.
func TestASpanOutlivesTheServer(t *testing.T) {
	t.Parallel()
	got, env := collect(t)
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Env: env})
	c, gate := d.Connect(t), filepath.Join(t.TempDir(), "gate")
	spec := process.Spec{ID: "spanned", Shell: "echo $TRACEPARENT; until [ -e '" + gate + "' ]; do sleep 0.1; done; exit 7", Stdin: process.StdinNull}
	p := proctest.Value(c.Start(t.Context(), spec))(t)
	request := got.find("the span of the request arrives", func(s *tracepb.Span) bool {
		return s.Kind == tracepb.Span_SPAN_KIND_SERVER && strings.Contains(s.Name, "/Start")
	})
	proctest.Must(t, d.Replace(t.Context(), testdaemon.Server))
	if again := proctest.Value(c.Start(t.Context(), spec))(t); again.ID() != p.ID() {
		t.Errorf("a start that is repeated is another process: %s", again.ID())
	}
	proctest.Must(t, os.WriteFile(gate, nil, 0o600))
	proctest.WantExit(t, p, 7)
	s := got.find("the span of the process arrives", func(s *tracepb.Span) bool { return s.Name == "process sh" })
	code := int64(-1)
	for _, kv := range s.Attributes {
		if kv.Key == "process.exit.code" {
			code = kv.Value.GetIntValue()
		}
	}
	if string(s.TraceId) != string(request.TraceId) || string(s.ParentSpanId) != string(request.SpanId) || code != 7 || s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the process is %v; the request was %v", s, request)
	}
	proctest.WantOutput(t, p, process.Stdout, fmt.Sprintf("00-%x-%x-01\n", s.TraceId, s.SpanId))
}

// TestATraceComesByEachDoor: who asks by MCP or by distant's transport has a span, below
// what the call, or the request around it, says; and so has the program that it starts.
func TestATraceComesByEachDoor(t *testing.T) {
	t.Parallel()
	const of, call, around, state = "0102030405060708090a0b0c0d0e0f10", "1112131415161718", "2122232425262728", "vendor=1,other=x"
	within := func(span string) string { return "00-" + of + "-" + span + "-01" }
	doors := []struct {
		name, span, above string
		run               func(t *testing.T, d *testdaemon.Daemon, command string) (output string)
	}{
		{"MCP, in the call", "tools/call run", call, func(t *testing.T, d *testdaemon.Daemon, command string) string {
			return byMCP(t, d, command, within(around), fmt.Sprintf(`,"_meta":{"traceparent":%q,"tracestate":%q}`, within(call), state))
		}},
		{"MCP, in the request alone", "tools/call run", "", func(t *testing.T, d *testdaemon.Daemon, command string) string {
			return byMCP(t, d, command, within(around), `,"_meta":{"traceparent":7}`)
		}},
		{"distant", "proc_spawn", call, func(t *testing.T, d *testdaemon.Daemon, command string) string {
			return byDistant(t, d, command, within(call), state)
		}},
	}
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			t.Parallel()
			got, env := collect(t)
			d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Env: env, Flags: []string{"--distant", "127.0.0.1:0"}})
			output := door.run(t, d, "echo [$TRACEPARENT $TRACESTATE]")
			program := got.find("the span of the process arrives", func(s *tracepb.Span) bool { return strings.HasPrefix(s.Name, "process ") })
			request := got.find("that of the request arrives", func(s *tracepb.Span) bool { return string(s.SpanId) == string(program.ParentSpanId) })
			above := fmt.Sprintf("%x", request.ParentSpanId)
			if want := door.above; want == "" {
				outer := got.find("that of the request around it arrives", func(s *tracepb.Span) bool { return string(s.SpanId) == string(request.ParentSpanId) })
				if fmt.Sprintf("%x", outer.ParentSpanId) != around || outer.Name != "POST /mcp" {
					t.Errorf("around it is %v", outer)
				}
			} else if above != want {
				t.Errorf("it is below %s, want %s", above, want)
			}
			if request.Name != door.span || request.Kind != tracepb.Span_SPAN_KIND_SERVER || fmt.Sprintf("%x", request.TraceId) != of || fmt.Sprintf("%x", program.TraceId) != of {
				t.Errorf("the request is %v, the process %v", request, program)
			}
			if want := fmt.Sprintf("[00-%s-%x-01 %s]", of, program.SpanId, state); !strings.Contains(output, want) || program.TraceState != state {
				t.Errorf("the program says %s, and its span has %q; want %s", output, program.TraceState, want)
			}
		})
	}
}

// byMCP calls the tool run, as clients without a session do.
func byMCP(t *testing.T, d *testdaemon.Daemon, command, traceparent, meta string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{"command":%q}%s}}`, command, meta)
	r := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", d.URL+"/mcp", strings.NewReader(body)))(t)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Traceparent": traceparent, "Tracestate": "vendor=1,other=x"} {
		r.Header.Set(k, v)
	}
	resp := proctest.Value(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	return string(proctest.Value(io.ReadAll(resp.Body))(t))
}

// byDistant starts a command over distant's transport, and reads its output to the end.
func byDistant(t *testing.T, d *testdaemon.Daemon, command, traceparent, state string) (output string) {
	var uri []byte
	proctest.Eventually(t, "the daemon serves distant", func() (ok bool) {
		var err error
		uri, err = os.ReadFile(filepath.Join(d.StateDir(), "distant", "uri"))
		return err == nil
	})
	u := proctest.Value(url.Parse(strings.TrimSpace(string(uri))))(t)
	text, _ := u.User.Password()
	c := proctest.Value(distanttest.Connect(func() (net.Conn, error) { return net.Dial("tcp", u.Host) }, proctest.Value(secure.ParseKey(text))(t)))(t)
	defer c.Close()
	w := wire.NewPack(nil)
	wire.Put(w, wire.Map{"header", wire.Map{"traceparent", traceparent, "tracestate", state, "other", true}, "id", "1", "payload", wire.Map{"type", "proc_spawn", "cmd", "sh -c '" + command + "'"}})
	c.Raw(w.Buffer())
	for {
		for _, m := range proctest.Value(c.Receive())(t) {
			switch m.Type {
			case "proc_stdout":
				output += string(m.Data)
			case "proc_done":
				return output
			case "error":
				t.Fatalf("%s: %s", m.Kind, m.Description)
			}
		}
	}
}
