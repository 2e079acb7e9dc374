//go:build linux

package crashtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testdaemon"
	"github.com/tend-run/tend/process"
)

// TestASpanOutlivesTheServer: the server that has started a process is killed before that
// ends. The next one sends its span, below the request that started it, with the status.
func TestASpanOutlivesTheServer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var spans []*tracepb.Span
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server was killed while it sent this
		}
		m := new(tracepb.TracesData)
		if err := proto.Unmarshal(body, m); err != nil || r.URL.Path != "/v1/traces" {
			t.Error(r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range m.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				spans = append(spans, ss.Spans...)
			}
		}
	}))
	defer collector.Close()
	env := append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_METRICS_EXPORTER=none")
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Env: env})
	c, gate := d.Connect(t), filepath.Join(t.TempDir(), "gate")
	find := func(what string, ok func(*tracepb.Span) bool) (found *tracepb.Span) {
		t.Helper()
		scene.Eventually(t, what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range spans {
				if ok(s) {
					found = s
				}
			}
			return found != nil
		})
		return found
	}
	spec := process.Spec{ID: "spanned", Shell: "echo $TRACEPARENT; until [ -e '" + gate + "' ]; do sleep 0.1; done; exit 7", Stdin: process.StdinNull}
	p := scene.Value(c.Start(t.Context(), spec))(t)
	request := find("the span of the request arrives", func(s *tracepb.Span) bool {
		return s.Kind == tracepb.Span_SPAN_KIND_SERVER && strings.Contains(s.Name, "/Start")
	})
	scene.Must(t, d.Replace(t.Context(), testdaemon.Server))
	if again := scene.Value(c.Start(t.Context(), spec))(t); again.ID() != p.ID() {
		t.Errorf("a start that is repeated is another process: %s", again.ID())
	}
	scene.Must(t, os.WriteFile(gate, nil, 0o600))
	scene.WantExit(t, p, 7)
	s := find("the span of the process arrives", func(s *tracepb.Span) bool { return s.Name == "process sh" })
	code := int64(-1)
	for _, kv := range s.Attributes {
		if kv.Key == "process.exit.code" {
			code = kv.Value.GetIntValue()
		}
	}
	if string(s.TraceId) != string(request.TraceId) || string(s.ParentSpanId) != string(request.SpanId) || code != 7 || s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the process is %v; the request was %v", s, request)
	}
	scene.WantOutput(t, p, process.Stdout, fmt.Sprintf("00-%x-%x-01\n", s.TraceId, s.SpanId))
}
