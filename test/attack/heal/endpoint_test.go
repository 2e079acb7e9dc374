//go:build linux

package heal

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestAHostileEndpoint: whatever a provider of models answers, a request ends, the key goes
// nowhere else, and no reply is taken for whole that is not.
func TestAHostileEndpoint(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		proctest.Value(z.Write(make([]byte, 1<<20)))(t)
	}
	proctest.Must(t, z.Close())
	forever := func(w http.ResponseWriter, r *http.Request, piece string) {
		for r.Context().Err() == nil {
			if _, err := fmt.Fprint(w, piece); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
	for name, c := range map[string]struct {
		won    string
		answer func(w http.ResponseWriter, r *http.Request, elsewhere string)
	}{
		"sends the request on to another host, with its key": {"the key", func(w http.ResponseWriter, r *http.Request, elsewhere string) {
			http.Redirect(w, r, elsewhere+"/v1/messages", http.StatusTemporaryRedirect)
		}},
		"knows no address, and sends the second one on": {"the key", func(w http.ResponseWriter, r *http.Request, elsewhere string) {
			if strings.HasPrefix(r.URL.Path, "/v1/") {
				http.NotFound(w, r)
				return
			}
			http.Redirect(w, r, elsewhere, http.StatusPermanentRedirect)
		}},
		"sends a few bytes that are very many": {"memory", func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes()) // its reader may be gone
		}},
		"sends comments without end": {
			"a request that never ends", func(w http.ResponseWriter, r *http.Request, _ string) { forever(w, r, ": still there\n\n") },
		},
		"sends a line without end": {"memory", func(w http.ResponseWriter, r *http.Request, _ string) {
			forever(w, r, "data: "+strings.Repeat("x", 64<<10))
		}},
		"sends an event without end": {"memory", func(w http.ResponseWriter, r *http.Request, _ string) {
			forever(w, r, "data: "+strings.Repeat("x", 64<<10)+"\n")
		}},
		"sends an error without end": {"memory", func(w http.ResponseWriter, r *http.Request, _ string) {
			w.WriteHeader(400)
			forever(w, r, strings.Repeat("x", 64<<10))
		}},
		"sends an error that has the key": {"the key, in a log", func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Error(w, `{"error":{"message":"`+modelKey+` is wrong"}}`, http.StatusUnauthorized)
		}},
		"sends a header without end": {"memory", func(w http.ResponseWriter, r *http.Request, _ string) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			for _, err = fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n"); err == nil; {
				_, err = fmt.Fprintf(conn, "X-%s: y\r\n", strings.Repeat("x", 64<<10))
			}
		}},
		"says that it continues, without end": {"a request that never ends", func(w http.ResponseWriter, r *http.Request, _ string) {
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		}},
		"asks to wait for ever": {"a repair that stands still", func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Retry-After", "1e300")
			w.WriteHeader(529)
		}},
		"answers with a page": {"a page that is taken for a reply", func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>log in</html>")
		}},
		"ends in the middle of a call": {"half a call is made", func(w http.ResponseWriter, r *http.Request, _ string) {
			fmt.Fprint(w, `data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"exec"}}`+"\n\n")
		}},
		"gives two calls one number": {"one call has the arguments of another", func(w http.ResponseWriter, r *http.Request, _ string) {
			fmt.Fprint(w, strings.Repeat(`data: `+
				`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"exec"}}`+"\n\n", 2)+"data: "+
				"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n")
		}},
		"nests what it says without bounds": {"the worker's stack", func(w http.ResponseWriter, r *http.Request, _ string) {
			fmt.Fprint(w, "data: "+strings.Repeat(`{"a":`, 500_000)+"\n\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stolen, asked atomic.Int64
			other, md := &model{}, &model{}
			other.serve(t, func(http.ResponseWriter, *http.Request) { stolen.Add(1) })
			md.serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				c.answer(w, r, other.URL)
			})
			claude := proctest.Value(agent.NewAnthropic(agent.Config{
				BaseURL: md.URL, Key: modelKey, Model: "m", Idle: 5 * time.Second, Reply: 2 * time.Second, Retries: 1, Backoff: time.Millisecond,
			}))(t)
			reply, err := claude.Ask(t.Context(), agent.Request{Messages: []agent.Message{{Blocks: []agent.Block{{Text: "hello"}}}}}, nil)
			if err == nil || len(reply.Blocks) > 0 {
				t.Errorf("won: %s. It is taken for a reply: %+v", c.won, reply)
			} else if len(err.Error()) > 2000 || strings.Contains(err.Error(), modelKey) {
				t.Errorf("won: %s. The error is %.3000s", c.won, err)
			}
			if stolen.Load() > 0 || asked.Load() > 4 {
				t.Errorf("won: %s. %d requests went elsewhere, and %d here", c.won, stolen.Load(), asked.Load())
			}
		})
	}
}
