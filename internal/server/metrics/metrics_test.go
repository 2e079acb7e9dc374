package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// scrape returns the samples as "name{labels}" → value, as text.
func scrape(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/-/metrics", nil))
	samples := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if s := regexp.MustCompile(`^(tend_\S+) (\S+)\n$`).FindStringSubmatch(line); s != nil {
			samples[s[1]] = s[2]
		}
	}
	return samples
}

func check(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %q; want %q", name, got[name], v)
		}
	}
}

func start(t *testing.T, m process.Manager, shell string) process.Process {
	t.Helper()
	p := proctest.Start(t, m, process.Spec{Shell: shell, Stdin: process.StdinPipe})
	t.Cleanup(func() { p.Kill(context.Background()) })
	return p
}

func finish(t *testing.T, p process.Process) {
	t.Helper()
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
}

func TestStartsProcessesAndBytesAreCounted(t *testing.T) {
	m := New(Config{
		Manager: testkeeper.New(t), Version: "v9",
		Roles: func() map[string]Role { return map[string]Role{"anchor": {PID: 3}, "keeper": {Restarts: 2}} },
	})
	done := start(t, m.Manager(), "read x; printf 12345; printf 678 >&2; exit 1")
	zero := int64(0)
	proctest.Value(done.Write(t.Context(), process.Input{Data: []byte("go\n"), Offset: &zero}))(t)
	finish(t, done)
	start(t, m.Manager(), "sleep 1000")
	if _, err := m.Manager().Start(t.Context(), process.Spec{Argv: []string{"/no/such/program"}}); err == nil {
		t.Fatal("a program that does not exist was started")
	}
	if _, err := m.Manager().Start(t.Context(), process.Spec{}); err == nil {
		t.Fatal("an empty spec was started")
	}
	want := map[string]string{
		`tend_build_info{version="v9"}`:               "1",
		`tend_start_seconds_count`:                    "2",
		`tend_start_errors_total{reason="not_found"}`: "1",
		`tend_start_errors_total{reason="invalid"}`:   "1",
		`tend_processes{state="running"}`:             "1",
		`tend_processes{state="exited"}`:              "1",
		`tend_output_bytes_total{stream="stdout"}`:    "5",
		`tend_output_bytes_total{stream="stderr"}`:    "3",
		`tend_output_bytes_total{stream="pty"}`:       "0",
		`tend_input_bytes_total`:                      "3",
		`tend_spool_bytes{stream="stdout"}`:           "5",
		`tend_role_up{role="anchor"}`:                 "1",
		`tend_role_up{role="keeper"}`:                 "0",
		`tend_role_restarts_total{role="keeper"}`:     "2",
	}
	check(t, scrape(t, m), want)
	check(t, scrape(t, m), want) // a second look counts nothing twice

	// A counter does not go back when a process is removed; a gauge does.
	proctest.Must(t, done.Remove(t.Context()))
	want[`tend_processes{state="exited"}`] = "0"
	want[`tend_spool_bytes{stream="stdout"}`] = "0"
	check(t, scrape(t, m), want)
}

func TestReaderLagIsThatOfTheReaderFurthestBehind(t *testing.T) {
	m := New(Config{Manager: testkeeper.New(t)})
	p := start(t, m.Manager(), "printf 0123456789; printf 01234 >&2")
	finish(t, p)
	check(t, scrape(t, m), map[string]string{"tend_readers": "0", "tend_reader_lag_bytes": "0"})

	open := func(opts process.ReadOptions) process.Reader {
		r := proctest.Value(p.Read(t.Context(), opts))(t)
		t.Cleanup(func() { r.Close() })
		return r
	}
	errs := open(process.ReadOptions{Streams: []process.Stream{process.Stderr}})
	check(t, scrape(t, m), map[string]string{"tend_readers": "1", "tend_reader_lag_bytes": "5"})
	open(process.ReadOptions{From: [4]int64{0, 4, 5, 0}})
	check(t, scrape(t, m), map[string]string{"tend_readers": "2", "tend_reader_lag_bytes": "6"})
	open(process.ReadOptions{From: [4]int64{process.FromNow, process.FromNow, process.FromNow, process.FromNow}})
	all := open(process.ReadOptions{})
	check(t, scrape(t, m), map[string]string{"tend_readers": "4", "tend_reader_lag_bytes": "10"})
	for range process.Follow(t.Context(), all) {
	}
	check(t, scrape(t, m), map[string]string{"tend_readers": "3", "tend_reader_lag_bytes": "6"})
	errs.Close()
	errs.Close() // twice is allowed
	check(t, scrape(t, m), map[string]string{"tend_readers": "2"})
}

// spans is a manager whose readers can give ranges of files.
type spans struct{ process.Manager }

func (s spans) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	p, err := s.Manager.Get(ctx, sel)
	return spanProcess{p}, err
}

type spanProcess struct{ process.Process }

func (s spanProcess) Read(ctx context.Context, opts process.ReadOptions) (process.Reader, error) {
	r, err := s.Process.Read(ctx, opts)
	return &oneSpan{Reader: r}, err
}

// oneSpan gives one span of seven bytes.
type oneSpan struct {
	process.Reader
	given bool
}

func (s *oneSpan) NextSpan(int) (process.Event, process.Span, bool, error) {
	if s.given {
		return process.Event{}, process.Span{}, false, nil
	}
	s.given = true
	return process.Event{Kind: process.EventOutput, Stream: process.Stdout}, process.Span{Len: 7}, true, nil
}

func (s *oneSpan) Valid(process.Stream, int64) bool { return true }

func TestReadersKeepTheirAbilityToGiveSpans(t *testing.T) {
	manager := testkeeper.New(t)
	p := start(t, manager, "printf 0123456789")
	finish(t, p)
	m := New(Config{Manager: spans{manager}})
	p = proctest.Value(m.Manager().Get(t.Context(), process.Selector{ID: p.ID()}))(t)
	r := proctest.Value(p.Read(t.Context(), process.ReadOptions{}))(t)
	defer r.Close()
	sp, ok := r.(process.Spanner)
	if !ok {
		t.Fatal("the reader has lost the ability")
	}
	if _, span, ok, err := sp.NextSpan(100); !ok || err != nil || span.Len != 7 || !sp.Valid(process.Stdout, 0) {
		t.Errorf("NextSpan = %+v, %v, %v", span, ok, err)
	}
	check(t, scrape(t, m), map[string]string{"tend_reader_lag_bytes": "3"})
}

func TestRequestsAreCounted(t *testing.T) {
	m := New(Config{Manager: testkeeper.New(t)})
	done := m.Requested("native")
	m.Requested("envd")()
	m.Refused("token")
	m.Panicked()
	want := map[string]string{
		`tend_http_requests_total{face="native"}`:  "1",
		`tend_http_requests_active{face="native"}`: "1",
		`tend_http_requests_active{face="envd"}`:   "0",
		`tend_http_refused_total{reason="token"}`:  "1",
		`tend_http_panics_total`:                   "1",
	}
	check(t, scrape(t, m), want)
	done()
	want[`tend_http_requests_active{face="native"}`] = "0"
	check(t, scrape(t, m), want)
}

// away is a manager whose keeper cannot be reached.
type away struct{ process.Manager }

func (away) List(context.Context, process.Filter) ([]process.Info, error) {
	return nil, process.ErrUnavailable
}

func TestAScrapeWithoutTheKeeperStillTellsTheRest(t *testing.T) {
	m := New(Config{Manager: away{}, Roles: func() map[string]Role { return map[string]Role{"keeper": {}} }})
	got := scrape(t, m)
	check(t, got, map[string]string{`tend_role_up{role="keeper"}`: "0", "tend_http_panics_total": "0"})
	if v, ok := got[`tend_processes{state="running"}`]; ok {
		t.Errorf("the number of processes is told as %s although nobody knows it", v)
	}
}

func TestStartReasonsAreFew(t *testing.T) {
	for want, err := range map[string]error{
		"exists": process.ErrExists, "limit": process.ErrLimit, "unsupported": process.ErrUnsupported,
		"unavailable": process.ErrUnavailable, "canceled": context.Canceled, "other": errors.New("x"),
		"bad_cwd": &process.StartError{Reason: process.StartBadDir}, "invalid": &process.InvalidError{},
	} {
		if got := startReason(err); got != want {
			t.Errorf("startReason(%v) = %q; want %q", err, got, want)
		}
	}
}
