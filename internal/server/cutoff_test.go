package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/support/proctest"
)

// upstream is a provider whose answers begin, and never end.
func upstream(t *testing.T) string {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":7}}}\n\n")
		w.(http.Flusher).Flush()
		<-end
	}))
	t.Cleanup(func() { close(end); s.Close() })
	return s.URL
}

// TestStreamsThatAreCutOffAreCounted: when Run has returned the process ends, and what a
// handler has not written by then is never written.
func TestStreamsThatAreCutOffAreCounted(t *testing.T) {
	const all = 60 // of one key at most 64 are passed on
	s := serve(t, func(c *Config) { c.Limits.CutOff = time.Minute })
	proctest.Must(t, os.WriteFile(filepath.Join(s.dir, providersFile), fmt.Appendf(nil, "providers:\n  anthropic: {key: sk-real-0123456789, base_url: '%s/v1'}\n", upstream(t)), 0o600))
	c := s.client(t, "h2", "tcp")
	status, text := do(t, c, "POST", s.tcp+"/tend.v1.KeyService/Create", `{"name":"a","rules":{"tokensPerDay":"10000000"}}`, map[string]string{"Content-Type": "application/json"})
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Secret == "" {
		t.Fatalf("no key: %d %s", status, text)
	}
	var reading sync.WaitGroup
	for i := range all {
		client := c
		if i%2 == 0 {
			client = s.client(t, "h1", "tcp")
		}
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", s.tcp+"/api/gateway/anthropic/v1/messages", strings.NewReader(`{"model":"m","stream":true}`)))(t)
		req.Header.Set("X-Api-Key", made.Secret)
		res := proctest.Value(client.Do(req))(t)
		defer res.Body.Close()
		if _, err := io.ReadFull(res.Body, make([]byte, 20)); err != nil {
			t.Fatalf("stream %d did not begin: %d, %v", i, res.StatusCode, err)
		}
		reading.Go(func() { io.Copy(io.Discard, res.Body) })
	}
	proctest.Must(t, s.stop())
	lines := 0
	for _, path := range proctest.Value(filepath.Glob(filepath.Join(s.dir, "gateway", "usage-*.jsonl")))(t) {
		for text := range strings.Lines(string(proctest.Value(os.ReadFile(path))(t))) {
			var line struct{ In, Out int64 }
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.In != 25 || line.Out < 7 {
				t.Errorf("a stream is counted as %s", text)
			}
			lines++
		}
	}
	if lines != all {
		t.Errorf("%d streams were cut off, and %d are counted when Run returns", all, lines)
	}
	reading.Wait()
}

// slow is a part whose requests have something to do when they are cut off.
type slow struct {
	named
	in   chan struct{}
	done *atomic.Bool
}

func (p slow) Routes() []module.Route {
	return []module.Route{{Pattern: "GET /slow", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(p.in)
		<-r.Context().Done()
		time.Sleep(100 * time.Millisecond)
		p.done.Store(true)
	})}}
}

func TestRunWaitsForWhatWasCutOff(t *testing.T) {
	p := slow{named: "slow", in: make(chan struct{}), done: new(atomic.Bool)}
	s := serve(t, func(c *Config) {
		c.Parts = []module.Part{p}
		c.Limits.CutOff = time.Minute
	})
	ask(t, s, "/slow", p.in, func() {
		proctest.Must(t, s.stop())
		if !p.done.Load() {
			t.Error("Run returned before a request that was cut off")
		}
	})
}

// ask calls f while a request runs.
func ask(t *testing.T, s *served, path string, in <-chan struct{}, f func()) {
	t.Helper()
	c := s.client(t, "h1", "tcp")
	var asking sync.WaitGroup
	asking.Go(func() {
		if res, err := c.Get(s.tcp + path); err == nil {
			res.Body.Close()
		}
	})
	<-in
	f()
	asking.Wait()
}

// hung is a part whose requests take no notice of their end.
type hung struct {
	named
	in, hold chan struct{}
}

func (h hung) Routes() []module.Route {
	return []module.Route{{Pattern: "GET /hung", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(h.in)
		<-h.hold
	})}}
}

func TestARequestThatHangsIsNotWaitedFor(t *testing.T) {
	h := hung{named: "hung", in: make(chan struct{}), hold: make(chan struct{})}
	s := serve(t, func(c *Config) {
		c.Parts = []module.Part{h}
		c.Limits.CutOff = 50 * time.Millisecond
	})
	ask(t, s, "/hung", h.in, func() { proctest.Must(t, s.stop()) }) // it ends all the same
	close(h.hold)
}
