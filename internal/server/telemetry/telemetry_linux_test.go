package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tend-run/tend/internal/server/metrics"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// taker is a collector. It answers with a status, if one is set, and takes nothing then.
type taker struct {
	*httptest.Server
	mu      sync.Mutex
	status  int
	tries   int
	spans   []*tracepb.Span
	metrics []*metricspb.Metric
	heads   []http.Header
	bodies  bytes.Buffer
}

func take(t *testing.T) *taker {
	c := &taker{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the part has ended while it sent this
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.tries++; c.status != 0 {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			return
		}
		c.heads = append(c.heads, r.Header)
		c.bodies.Write(body)
		switch r.URL.Path {
		case "/v1/traces":
			m := new(tracepb.TracesData)
			err = proto.Unmarshal(body, m)
			for _, rs := range m.ResourceSpans {
				for _, ss := range rs.ScopeSpans {
					c.spans = append(c.spans, ss.Spans...)
				}
			}
		case "/v1/metrics":
			m := new(metricspb.MetricsData)
			err = proto.Unmarshal(body, m)
			for _, rm := range m.ResourceMetrics {
				for _, sm := range rm.ScopeMetrics {
					c.metrics = append(c.metrics, sm.Metrics...)
				}
			}
		default:
			err = errors.New("nobody is to be sent to " + r.URL.Path)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *taker) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// span waits for a span that is so.
func (c *taker) span(t *testing.T, what string, ok func(*tracepb.Span) bool) (found *tracepb.Span) {
	t.Helper()
	proctest.Eventually(t, what, func() bool {
		c.with(func() {
			for _, s := range c.spans {
				if ok(s) {
					found = s
				}
			}
		})
		return found != nil
	})
	return found
}

// of is the span of a process.
func of(id process.ID) func(*tracepb.Span) bool {
	return func(s *tracepb.Span) bool { return attributes(s)["tend.process.id"] == string(id) }
}

func attributes(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, kv := range s.Attributes {
		if all[kv.Key] = kv.Value.GetStringValue(); all[kv.Key] == "" {
			all[kv.Key] = fmt.Sprint(kv.Value.GetIntValue())
		}
	}
	return all
}

// lines is a log that may be written while it is read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// open is the part over a manager, as the server has it, until end is called.
func open(t *testing.T, m process.Manager, dir string, log io.Writer, set map[string]string) (sight *Telemetry, traced process.Manager, end func()) {
	t.Helper()
	s := proctest.Value(FromEnvironment(variables(set)))(t)
	sight = Open(Config{Settings: s, Dir: dir, Instance: "1", Version: "9", Log: slog.New(slog.NewTextHandler(log, nil))})
	measured := metrics.New(metrics.Config{Manager: sight.Over(m), Version: "9"})
	sight.Feed(m, measured)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sight.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); wg.Wait(); sight.Close() })
	t.Cleanup(end)
	return sight, measured.Manager(), end
}

func at(c *taker) map[string]string {
	return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=hunter2", "OTEL_METRICS_EXPORTER": "none"}
}

const above = "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01"

// ask starts a process by a request.
func ask(t *testing.T, sight *Telemetry, m process.Manager, spec process.Spec) (p process.Process) {
	t.Helper()
	h := sight.Around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if p, err = m.Start(r.Context(), spec); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	r := httptest.NewRequest("POST", "/start/hunter2?token=hunter2", nil)
	r.Pattern = "POST /start/{what}"
	r.Header.Set("Traceparent", above)
	r.Header.Set("Tracestate", "vendor=1")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if p == nil {
		t.FailNow()
	}
	return p
}

func TestATraceGoesFromTheRequestToTheProcess(t *testing.T) {
	t.Parallel()
	c, m := take(t), testkeeper.New(t)
	sight, traced, end := open(t, m, t.TempDir(), io.Discard, at(c))
	spec := process.Spec{ID: "traced", Shell: "echo $TRACEPARENT $TRACESTATE; exit 3", Env: map[string]string{"KEY": "hunter2", "TRACESTATE": "of=another"}}
	p := ask(t, sight, traced, spec)
	proctest.WantExit(t, p, 3)
	again := ask(t, sight, traced, spec) // by another request
	if again.ID() != p.ID() {
		t.Errorf("a start that is repeated is another process: %s", again.ID())
	}
	other := spec
	other.Shell = "exit 4"
	if _, err := traced.Start(t.Context(), other); !errors.Is(err, process.ErrExists) {
		t.Errorf("another process with the same ID: %v", err)
	}
	proc := c.span(t, "the process's span arrives", of("traced"))
	request := c.span(t, "the request's span arrives", func(s *tracepb.Span) bool { return string(s.SpanId) == string(proc.ParentSpanId) })
	if want := fmt.Sprintf("00-%x-%x-01 vendor=1\n", proc.TraceId, proc.SpanId); proctest.Output(t, p, process.Stdout) != want {
		t.Errorf("the program has TRACEPARENT %q; want %q", proctest.Output(t, p, process.Stdout), want)
	}
	if proc.TraceState != "vendor=1" || request.TraceState != "vendor=1" {
		t.Errorf("the spans have the states %q and %q", proc.TraceState, request.TraceState)
	}
	if got := fmt.Sprintf("00-%x-%x-01", request.TraceId, request.ParentSpanId); got != above {
		t.Errorf("the request is below %s; want %s", got, above)
	}
	if a := attributes(request); request.Name != "POST /start/{what}" || request.Kind != tracepb.Span_SPAN_KIND_SERVER || a["http.response.status_code"] != "201" {
		t.Errorf("the request is %s, %v, %v", request.Name, request.Kind, a)
	}
	in := proctest.Info(t, p)
	a := attributes(proc)
	if string(proc.TraceId) != string(request.TraceId) || proc.Name != "process sh" || a["process.exit.code"] != "3" || a["tend.process.cause"] != "exited" || a["process.executable.name"] != "sh" ||
		proc.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || int64(proc.StartTimeUnixNano) != in.Started.UnixNano() || int64(proc.EndTimeUnixNano) != in.Exit.Time.UnixNano() {
		t.Errorf("the process is %v", proc)
	}
	end()
	c.with(func() {
		if strings.Contains(c.bodies.String(), "hunter2") {
			t.Error("what is sent has something secret in it")
		}
		for _, h := range c.heads {
			if h.Get("Api-Key") != "hunter2" {
				t.Errorf("the headers are %v", h)
			}
		}
	})
}

func TestAProcessHasTheTraceThatItsSpecSays(t *testing.T) {
	t.Parallel()
	c, m := take(t), testkeeper.New(t)
	sight, traced, _ := open(t, m, t.TempDir(), io.Discard, at(c))
	full := map[string]string{}
	for i := range process.MaxLabels {
		full[fmt.Sprint(i)] = ""
	}
	p := proctest.Start(t, traced, process.Spec{Shell: "echo $TRACEPARENT $TRACESTATE", Env: map[string]string{"TRACEPARENT": above, "TRACESTATE": "its=own"}})
	proctest.WantOutput(t, p, process.Stdout, above+" its=own\n")
	for state, want := range map[string]string{"a=" + strings.Repeat("x", 200) + ",b=" + strings.Repeat("y", 200): "a=" + strings.Repeat("x", 200) + ",b=" + strings.Repeat("y", 200), "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("y", 250) + ",c=" + strings.Repeat("y", 250): "", "no state": ""} {
		ctx, end := sight.Request(t.Context(), "proc_spawn", func(key string) string {
			return map[string]string{"traceparent": above, "tracestate": state}[key]
		})
		p := proctest.Value(traced.Start(ctx, process.Spec{Shell: "printf %s \"$TRACESTATE\""}))(t)
		end(true)
		proctest.WantOutput(t, p, process.Stdout, want)
	}
	if s := c.span(t, "its span arrives", of(p.ID())); fmt.Sprintf("00-%x-%x-01", s.TraceId, s.ParentSpanId) != above {
		t.Errorf("it is below %x, %x; want %s", s.TraceId, s.ParentSpanId, above)
	}
	proctest.WantExit(t, proctest.Start(t, traced, process.Spec{Shell: "[ -z $TRACEPARENT ]", Labels: full}), 0) // no room for a trace
	lost := proctest.Start(t, traced, process.Spec{Argv: []string{"sleep", "1000"}})
	proctest.Kill(t, lost)
	if s := c.span(t, "the span of a killed process arrives", of(lost.ID())); attributes(s)["tend.process.signal"] != "9" || attributes(s)["process.exit.code"] != "" || s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("it is %v", s)
	}
}

func TestWhatIsNotSampledIsNotSent(t *testing.T) {
	t.Parallel()
	c, m := take(t), testkeeper.New(t)
	set := at(c)
	set["OTEL_TRACES_SAMPLER"] = "always_off"
	sight, traced, end := open(t, m, t.TempDir(), io.Discard, set)
	p := ask(t, sight, traced, process.Spec{Shell: "echo ${TRACEPARENT##*-}"})
	proctest.WantOutput(t, p, process.Stdout, "00\n")
	proctest.WantExit(t, p, 0)
	end()
	c.with(func() {
		if c.tries != 0 {
			t.Errorf("%d messages were sent", c.tries)
		}
	})
}

// TestACollectorThatIsDownDisturbsNobody: starts go on, one warning is in the log, and what
// ended meanwhile is sent when the collector is back, by this server or the next.
func TestACollectorThatIsDownDisturbsNobody(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusFound} {
		c, m, log, dir := take(t), testkeeper.New(t), &lines{}, filepath.Join(t.TempDir(), "notes")
		c.status = status
		_, traced, end := open(t, m, dir, log, at(c))
		first := proctest.Start(t, traced, process.Spec{Shell: "exit 1"})
		proctest.WantExit(t, first, 1)
		proctest.Eventually(t, "the collector has refused twice", func() bool {
			var tries int
			c.with(func() { tries = c.tries })
			return tries >= 2
		})
		second := proctest.Start(t, traced, process.Spec{Shell: "exit 2"})
		proctest.WantExit(t, second, 2)
		end()
		said := log.String()
		if strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, strings.TrimPrefix(c.URL, "http://")) || strings.Contains(said, "hunter2") || strings.Contains(said, "/v1/traces") {
			t.Errorf("the log says:\n%s", said)
		}
		c.with(func() { c.status = 0 })
		_, _, end = open(t, m, dir, log, at(c))
		c.span(t, "the first is sent", of(first.ID()))
		c.span(t, "the second is sent", of(second.ID()))
		proctest.Eventually(t, "both are noted", func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, "sent"))
			return strings.Count(string(b), "\n") == 2
		})
		end()
		// A third server sends what there is to send, and nothing again.
		_, traced, _ = open(t, m, dir, log, at(c))
		third := proctest.Start(t, traced, process.Spec{Shell: "exit 3"})
		c.span(t, "the third is sent", of(third.ID()))
		c.with(func() {
			if len(c.spans) != 3 {
				t.Errorf("%d spans were sent of three processes", len(c.spans))
			}
		})
	}
}

// slowList is a manager whose list waits.
type slowList struct {
	process.Manager
	wait <-chan struct{}
}

func (m *slowList) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	select {
	case <-m.wait:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return m.Manager.List(ctx, f)
}

// TestAnExitWhileTheListIsMadeIsSentOnce: it is in the list, and among the events.
func TestAnExitWhileTheListIsMadeIsSentOnce(t *testing.T) {
	t.Parallel()
	c, wait := take(t), make(chan struct{})
	_, traced, _ := open(t, &slowList{testkeeper.New(t), wait}, t.TempDir(), io.Discard, at(c))
	for range 3 {
		proctest.WantExit(t, proctest.Start(t, traced, process.Spec{Shell: "exit 1"}), 1)
	}
	close(wait)
	last := proctest.Start(t, traced, process.Spec{Shell: "exit 2"})
	c.span(t, "the last is sent", of(last.ID()))
	c.with(func() {
		if len(c.spans) != 4 {
			t.Errorf("%d spans were sent of 4 processes", len(c.spans))
		}
	})
}

// TestACollectorThatNeverAnswersHoldsNobody: starts go on, and so does the end of a server.
// What ended meanwhile is sent by the next one.
func TestACollectorThatNeverAnswersHoldsNobody(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 100), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	t.Cleanup(silent.Close)
	defer close(release)
	m, dir, set := testkeeper.New(t), t.TempDir(), map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": silent.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "600000", "OTEL_METRICS_EXPORTER": "none"}
	sight, traced, end := open(t, m, dir, io.Discard, set)
	first := ask(t, sight, traced, process.Spec{Shell: "exit 1"})
	proctest.WantExit(t, first, 1)
	<-asked // and waits for an answer from now on
	second := ask(t, sight, traced, process.Spec{Shell: "exit 2"})
	proctest.WantExit(t, second, 2)
	end()
	c := take(t)
	open(t, m, dir, io.Discard, at(c))
	c.span(t, "the first is sent", of(first.ID()))
	c.span(t, "the second is sent", of(second.ID()))
}

func TestMetricsAreThoseOfTheScrape(t *testing.T) {
	t.Parallel()
	c, m := take(t), testkeeper.New(t)
	set := map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": c.URL + "/v1/metrics", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
	_, traced, _ := open(t, m, t.TempDir(), io.Discard, set)
	proctest.WantExit(t, proctest.Start(t, traced, process.Spec{Shell: "exit 0"}), 0)
	named := func(name string) (found *metricspb.Metric) {
		c.with(func() {
			for _, m := range c.metrics {
				if m.Name == name {
					found = m
				}
			}
		})
		return found
	}
	proctest.Eventually(t, "the start is counted", func() bool {
		h := named("tend_start_seconds").GetHistogram().GetDataPoints()
		if len(h) != 1 || h[0].Count != 1 {
			return false
		}
		var all uint64
		for _, n := range h[0].BucketCounts {
			all += n
		}
		return all == 1 && len(h[0].BucketCounts) == len(h[0].ExplicitBounds)+1
	})
	if n := named("tend_output_bytes_total").GetSum(); !n.GetIsMonotonic() || len(n.GetDataPoints()) != 3 {
		t.Errorf("bytes of output are %v", n)
	}
	if n := named("tend_processes").GetGauge(); len(n.GetDataPoints()) != 3 || n.DataPoints[0].Attributes[0].Key != "state" {
		t.Errorf("processes are %v", n)
	}
	if named("go_gc_duration_seconds").GetSummary() == nil {
		t.Error("there is no summary")
	}
}

func TestTheSpanOfAProcedureHasItsName(t *testing.T) {
	t.Parallel()
	c, m := take(t), testkeeper.New(t)
	sight, _, _ := open(t, m, t.TempDir(), io.Discard, at(c))
	h := sight.Around(http.NotFoundHandler())
	for _, path := range []string{"/a.v1.S/Start", "/a.v1.S/..%2fhunter2", "/a.v1.S/" + strings.Repeat("a", 65)} {
		r := httptest.NewRequest("POST", path, nil)
		r.Pattern = "/a.v1.S/"
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	var names []string
	proctest.Eventually(t, "the spans arrive", func() bool {
		c.with(func() {
			names = nil
			for _, s := range c.spans {
				names = append(names, s.Name)
			}
		})
		return len(names) >= 3
	})
	if want := []string{"POST /a.v1.S/Start", "POST /a.v1.S/", "POST /a.v1.S/"}; !slices.Equal(names, want) {
		t.Errorf("the spans are %q; want %q", names, want)
	}
}

func TestNothingIsMadeWithoutVariables(t *testing.T) {
	t.Parallel()
	sight := Open(Config{})
	defer sight.Close()
	h := http.Handler(http.NewServeMux())
	if sight.On() || sight.Around(h) != h || sight.requests != nil || sight.processes != nil {
		t.Error("there is something")
	}
}
