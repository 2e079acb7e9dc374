package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol/gateway"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// sandbox makes a sandbox, and returns its ID.
func (s *served) sandbox(t *testing.T) driver.ID {
	t.Helper()
	sandbox := proctest.Value(s.cfg.Driver.Create(t.Context(), driver.Spec{}))(t)
	return proctest.Value(sandbox.Info(t.Context()))(t).ID
}

// key makes a virtual key, and returns its ID and its secret.
func (s *served) key(t *testing.T, name string) (id, secret string) {
	t.Helper()
	for _, p := range s.cfg.Parts {
		if g, ok := p.(*gateway.Face); ok {
			k, secret, err := g.CreateKey(name, gateway.Rules{})
			proctest.Must(t, err)
			return k.ID, secret
		}
	}
	t.Fatal("there is no gateway")
	return "", ""
}

// watchUse notes the most that a holder has had, until it is called.
func watchUse(b *budget.Budget, h budget.Holder) (most func() int64) {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		for {
			most = max(most, b.UsedBy(h))
			select {
			case <-time.After(time.Millisecond):
			case <-stop:
				done <- most
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-done
	}
}

// TestOneHolderLeavesRoomForOthers: hundreds of bodies that do not end, of clients of one
// sandbox or with one key, are refused beyond its share, and those of others pass.
func TestOneHolderLeavesRoomForOthers(t *testing.T) {
	const whole, clients, length, sent = 32 << 20, 200, 1 << 20, 200 << 10
	for _, tt := range []struct {
		name, path, kind string
		key              bool
	}{
		{"a start of envd in a sandbox", "/process.Process/Start", "application/json", false},
		{"input of envd in a sandbox", "/process.Process/SendInput", "application/json", false},
		{"a stream of input of envd in a sandbox", "/process.Process/StreamInput", "application/connect+json", false},
		{"files of envd in a sandbox", "/filesystem.Filesystem/Stat", "application/json", false},
		{"tools in a sandbox", "/mcp", "application/json", false},
		{"a model by a key", "/api/gateway/openai/responses", "application/json", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *Config) { c.Budget = budget.New(whole) })
			providers := "providers:\n  openai: {key: sk-real-0123456789, base_url: 'http://127.0.0.1:9/v1'}\n"
			proctest.Must(t, os.WriteFile(filepath.Join(s.dir, providersFile), []byte(providers), 0o600))
			var hostile, other http.Header
			var of budget.Holder
			if tt.key {
				id, secret := s.key(t, "hostile")
				_, theirs := s.key(t, "other")
				of, hostile = budget.Key(id), http.Header{"Authorization": {"Bearer " + secret}}
				other = http.Header{"Authorization": {"Bearer " + theirs}}
			} else {
				id := s.sandbox(t)
				name := "E2b-Sandbox-Id"
				if tt.path == "/mcp" {
					name = "Tend-Sandbox"
				}
				of, hostile, other = budget.Sandbox(id), http.Header{name: {string(id)}}, http.Header{name: {string(s.sandbox(t))}}
			}
			part := bytes.Repeat([]byte(" "), sent)
			if strings.Contains(tt.kind, "connect") {
				part = envelope(length-5, part)
			}
			most := watchUse(s.budget, of)
			var refused atomic.Int64
			var all sync.WaitGroup
			var conns []net.Conn
			for range clients {
				conn := begun(t, s, tt.path, tt.kind, length, part, hostile)
				conns = append(conns, conn)
				all.Go(func() {
					res, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						return // it was closed below
					}
					text, _ := io.ReadAll(res.Body)
					res.Body.Close()
					if !strings.Contains(string(text), "large requests in flight") || res.StatusCode == 429 && res.Header.Get("Retry-After") != "1" {
						t.Errorf("refused with %s, Retry-After %q, %.200s", res.Status, res.Header.Get("Retry-After"), text)
					}
					refused.Add(1)
				})
			}
			proctest.Eventually(t, "some are held, and most of all refused", func() bool {
				return s.budget.UsedBy(of) > whole/16 && refused.Load() > clients/2 || t.Failed()
			})
			// Another one's request of the same size is read to its end: what it says is wrong.
			wrong := bytes.Repeat([]byte("!"), sent)
			if strings.Contains(tt.kind, "connect") {
				wrong = envelope(sent-5, wrong[5:])
			}
			conn := begun(t, s, tt.path, tt.kind, sent, wrong, other)
			res := proctest.Value(http.ReadResponse(bufio.NewReader(conn), nil))(t)
			text := proctest.Value(io.ReadAll(res.Body))(t)
			if strings.Contains(string(text), "in flight") || res.StatusCode == 429 || res.StatusCode == 503 {
				t.Errorf("another one's is answered %s %.300s", res.Status, text)
			}
			for _, c := range conns {
				c.Close()
			}
			all.Wait()
			if got := most(); got > whole/4 {
				t.Errorf("one had %d bytes of %d", got, whole)
			}
			proctest.Eventually(t, "all of the budget is given back", func() bool { return s.budget.Used() == 0 && s.budget.UsedBy(of) == 0 })
		})
	}
}

// echo is a part whose handler takes what comes on the budget of a sandbox, and does with it
// what it is told.
type echo struct {
	do func(http.ResponseWriter, *http.Request)
}

func (echo) Name() string { return "echo" }

func (e echo) Routes() []module.Route {
	body := func(path string) module.Body {
		return map[string]module.Body{"/echo/messages": module.Messages, "/echo/file": module.File, "/echo/fields": module.Fields}[path]
	}
	do := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		budget.Of(r.Context()).For(budget.Sandbox("s"))
		e.do(w, r)
	})
	return []module.Route{{Pattern: "/echo/", Access: module.Own, Body: body, Handler: do}}
}

// TestAPanicGivesBackWhatItHeld, and so does a handler that breaks its answer off.
func TestAPanicGivesBackWhatItHeld(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Budget = budget.New(64 << 20)
		c.Parts = append(c.Parts, echo{func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			charge := budget.Of(r.Context())
			if err := charge.Add(1 << 20); err != nil || charge.Held() < 1<<20 {
				t.Error(charge.Held(), err)
			}
			if r.Header.Get("How") == "abort" {
				panic(http.ErrAbortHandler)
			}
			panic("a bug")
		}})
	})
	for _, path := range []string{"/echo/messages", "/echo/file", "/echo/fields"} {
		for _, protocol := range []string{"h1", "h2"} {
			for _, how := range []string{"abort", "bug"} {
				msg := envelope(500<<10, make([]byte, 500<<10))
				req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", s.tcp+path, bytes.NewReader(msg)))(t)
				req.Header.Set("How", how)
				if res, err := s.client(t, protocol, "tcp").Do(req); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				proctest.Eventually(t, path+" gives all back", func() bool {
					return s.budget.Used() == 0 && s.budget.UsedBy(budget.Sandbox("s")) == 0
				})
			}
		}
	}
}

// TestWhatWaitsOverHTTP2IsCharged: its server takes 256 KiB of each request that is not read.
func TestWhatWaitsOverHTTP2IsCharged(t *testing.T) {
	const whole, streams = 16 << 20, 64
	for _, path := range []string{"/echo/messages", "/echo/file"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var reading, refused atomic.Int64
			goOn := make(chan struct{})
			s := serve(t, func(c *Config) {
				c.Budget = budget.New(whole)
				c.Parts = append(c.Parts, echo{func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadFull(r.Body, make([]byte, 1<<10)); err != nil {
						refused.Add(1)
						http.Error(w, err.Error(), http.StatusTooManyRequests)
						return
					}
					reading.Add(1)
					defer reading.Add(-1)
					select {
					case <-goOn:
					case <-r.Context().Done():
					}
				}})
			})
			c := s.client(t, "h2", "tcp")
			ctx, leave := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer leave()
			for range streams {
				all.Go(func() {
					body := io.MultiReader(bytes.NewReader(envelope(1<<20, nil)), neverEnds{})
					req, err := http.NewRequestWithContext(ctx, "POST", s.tcp+path, body)
					if err != nil {
						t.Error(err)
						return
					}
					if res, err := c.Do(req); err == nil {
						res.Body.Close()
					}
				})
			}
			proctest.Eventually(t, "all are read, or refused", func() bool { return reading.Load()+refused.Load() == streams })
			held, got := s.budget.UsedBy(budget.Sandbox("s")), reading.Load()
			if got == 0 || refused.Load() == 0 || held < got*streamBuffer || held > whole/4 {
				t.Errorf("%d wait and hold %d bytes, %d were refused", got, held, refused.Load())
			}
			leave()
			all.Wait()
			proctest.Eventually(t, "all is given back", func() bool { return s.budget.Used() == 0 })
			close(goOn)
		})
	}
}

type neverEnds struct{}

func (neverEnds) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestStreamsThatAreNotReadHoldAShare: the frame that waits for each is on the budget, and the
// streams of another sandbox come whole.
func TestStreamsThatAreNotReadHoldAShare(t *testing.T) {
	const whole, streams, size = 4 << 20, 40, 2 << 20
	for _, tt := range []struct{ name, accept string }{{"frames", ""}, {"messages of connect-go", "gzip"}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *Config) { c.Budget = budget.New(whole) })
			hostile, other := s.sandbox(t), s.sandbox(t)
			var h2 http.Protocols
			h2.SetUnencryptedHTTP2(true)
			tr := &http.Transport{Protocols: &h2, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
			t.Cleanup(tr.CloseIdleConnections)
			start := func(ctx context.Context, id driver.ID) (*http.Response, error) {
				msg := []byte(fmt.Sprintf(`{"process":{"cmd":"/bin/sh","args":["-c","head -c %d /dev/urandom"]}}`, size))
				req, err := http.NewRequestWithContext(ctx, "POST", s.tcp+"/process.Process/Start", bytes.NewReader(envelope(len(msg), msg)))
				if err != nil {
					return nil, err
				}
				req.Header = http.Header{
					"Content-Type": {"application/connect+json"}, "E2b-Sandbox-Id": {string(id)}, "Connect-Protocol-Version": {"1"},
				}
				if tt.accept != "" {
					req.Header.Set("Connect-Accept-Encoding", tt.accept)
				}
				return tr.RoundTrip(req)
			}
			most := watchUse(s.budget, budget.Sandbox(hostile))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			for range streams {
				res := proctest.Value(start(ctx, hostile))(t)
				defer res.Body.Close()
			}
			proctest.Eventually(t, "frames wait", func() bool { return s.budget.UsedBy(budget.Sandbox(hostile)) > 0 })
			res := proctest.Value(start(t.Context(), other))(t)
			defer res.Body.Close()
			if n := proctest.Value(io.Copy(io.Discard, res.Body))(t); tt.accept == "" && n < size {
				t.Errorf("another sandbox's stream has %d bytes", n)
			}
			leave()
			if got := most(); got > whole/4 {
				t.Errorf("one had %d bytes of %d", got, whole)
			}
			proctest.Eventually(t, "all is given back", func() bool { return s.budget.Used() == 0 })
		})
	}
}
