package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// named is a part without any ability.
type named string

func (n named) Name() string { return string(n) }

// toy has every ability that a part may have. GET /toy answers the number of
// processes, which its work in the background counts.
type toy struct {
	name    string
	manager process.Manager
	broken  error // what Run returns

	count   atomic.Int64
	streams atomic.Int64

	mu     sync.Mutex
	events []string // guarded by mu
}

var (
	_ module.Router        = (*toy)(nil)
	_ module.Runner        = (*toy)(nil)
	_ module.Streamer      = (*toy)(nil)
	_ module.Reporter      = (*toy)(nil)
	_ io.Closer            = (*toy)(nil)
	_ prometheus.Collector = (*toy)(nil)
)

func (p *toy) Name() string { return p.name }

func (p *toy) note(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event)
}

func (p *toy) noted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

func (p *toy) Routes() []module.Route {
	return []module.Route{{Pattern: "GET /toy", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, p.count.Load())
	})}}
}

func (p *toy) Run(ctx context.Context) error {
	if p.broken != nil {
		return p.broken
	}
	p.note("run")
	w, err := p.manager.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		ev, ok, err := w.Next()
		switch {
		case err != nil:
			return err
		case ok && ev.Kind == process.EventStarted:
			p.count.Add(1)
		case ok:
		default:
			select {
			case <-w.Ready():
			case <-ctx.Done():
				p.note("run ended")
				return nil
			}
		}
	}
}

func (p *toy) Streams() int {
	if p.streams.Add(-1) >= 0 {
		p.note("asked for its streams")
		return 1
	}
	return 0
}

func (p *toy) Status() map[string]string {
	return map[string]string{"processes": strconv.FormatInt(p.count.Load(), 10)}
}

func (p *toy) Close() error { p.note("closed"); return nil }

var toyCount = prometheus.NewDesc("tend_toy_processes", "Processes that a toy saw.", nil, nil)

func (p *toy) Describe(c chan<- *prometheus.Desc) { c <- toyCount }
func (p *toy) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.MustNewConstMetric(toyCount, prometheus.GaugeValue, float64(p.count.Load()))
}

// TestAPartOfAServer puts a part with all abilities into a server, beside the
// others.
func TestAPartOfAServer(t *testing.T) {
	m := testkeeper.New(t)
	p := &toy{name: "toy", manager: m}
	p.streams.Store(2)
	s := serve(t, func(c *Config) {
		c.Manager, c.Token, c.Parts = m, "s3cret", []module.Part{p}
		c.Final = func() bool { p.note("final"); return true }
	})
	proctest.Eventually(t, "the part runs", func() bool { return slices.Contains(p.noted(), "run") })
	proctest.Value(m.Start(t.Context(), process.Spec{Argv: []string{"sleep", "1000"}}))(t)
	proctest.Eventually(t, "one is counted", func() bool { return p.count.Load() == 1 })

	c, bearer := s.client(t, "h1", "tcp"), map[string]string{"Authorization": "Bearer s3cret"}
	if got, text := get(t, c, s.tcp+"/toy", nil); got != 401 {
		t.Errorf("without the token it is %d %s: a route that says nothing needs it", got, text)
	}
	if got, text := get(t, c, s.tcp+"/toy", bearer); got != 200 || text != "1" {
		t.Errorf("GET /toy is %d %s; want 1", got, text)
	}
	if got, text := do(t, c, "POST", s.tcp+"/toy", "{}", bearer); got != 405 {
		t.Errorf("POST /toy is %d %s; want 405", got, text)
	}
	if got, text := get(t, c, s.tcp+"/nobody/serves/it", bearer); got != 404 {
		t.Errorf("a path that nobody serves is %d %s; want 404", got, text)
	}
	_, text := get(t, c, s.tcp+"/-/metrics", bearer)
	if strings.Contains(text, `face="none"`) {
		t.Error("a path that nobody serves counts as a face")
	}
	for _, line := range []string{"tend_toy_processes 1\n", "tend_http_requests_total{face=\"toy\"} 2\n", "tend_http_refused_total{reason=\"route\"} 2\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("the metrics have no %q", line)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	// Run and Close end side by side.
	want := []string{"run", "final", "asked for its streams", "asked for its streams", "closed", "run ended"}
	got := p.noted()
	if slices.Sort(want[4:]); len(got) == len(want) {
		slices.Sort(got[4:])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the part was asked for %q; want %q", got, want)
	}
}

func TestABrokenPartEndsRunWithItsError(t *testing.T) {
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := assemble(t, t.TempDir(), Config{Manager: testkeeper.New(t), Settings: operator.Settings{Listeners: []net.Listener{l}},
		Parts: []module.Part{&toy{name: "toy", broken: io.ErrNoProgress}}})
	if err := s.Run(t.Context()); err != io.ErrNoProgress {
		t.Errorf("Run returned %v", err)
	}
}

// TestAnOpenRouteIsOpenToReadersAlone: it needs no token, and no known user.
func TestAnOpenRouteIsOpenToReadersAlone(t *testing.T) {
	rt := route{Route: module.Route{Access: module.Open}}
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "POST": false, "OPTIONS": false} {
		if rt.openTo(method) != want {
			t.Errorf("open to %s: %v; want %v", method, !want, want)
		}
	}
	if (route{}).openTo("GET") {
		t.Error("a path that no part serves is open")
	}
}
