package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A stream of a key that is made void, by whichever server, ends.
func TestAKeyThatIsRevokedEndsItsStreams(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			io.WriteString(w, ": here\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	g := open(t, t.TempDir(), upstream)
	other := open(t, g.dir, upstream)
	req := proctest.Value(http.NewRequest("POST", g.url+"/api/gateway/openai/responses", strings.NewReader(`{"model":"m","stream":true}`)))(t)
	req.Header.Set("Authorization", "Bearer "+g.key("a", Rules{}))
	resp := proctest.Value(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	proctest.Value(io.ReadFull(resp.Body, make([]byte, 100)))(t)
	proctest.Must(t, other.RevokeKey("a"))
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream ends as if it were whole")
	}
}

// What the requests of one key hold in memory is bounded, and leaves room for others.
func TestWhatRequestsHoldIsBounded(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		begun <- struct{}{}
		<-end
	})
	g := open(t, t.TempDir(), upstream)
	key, other := g.key("a", Rules{}), g.key("b", Rules{})
	big := strings.Repeat("x", maxBody)
	var wg sync.WaitGroup
	for range mostHeld / maxBody {
		wg.Go(func() { g.ask("POST", "/api/gateway/openai/x", key, big) })
		<-begun
	}
	status, h, body := g.ask("POST", "/api/gateway/openai/x", key, "x")
	if status != 429 || h.Get("Retry-After") != "1" || !strings.Contains(errorOf(body), "of the 512 MiB") {
		t.Errorf("one more: %d %s", status, body)
	}
	wg.Go(func() {
		if status, _, _ := g.ask("POST", "/api/gateway/openai/x", other, "x"); status != 200 {
			t.Errorf("another key: %d", status)
		}
	})
	<-begun
	close(end)
	wg.Wait()
	proctest.Eventually(t, "nothing is held any more", func() bool { // an answer is received before its handler has returned
		return g.budget.Used() == 0 && g.places.Used() == 0
	})
}

// Eight keys that give no place back, as by answers that they do not read, leave some to a ninth.
func TestKeysLeavePlacesToOthers(t *testing.T) {
	g := open(t, t.TempDir(), far(t, func(http.ResponseWriter, *http.Request, string) {}))
	var leaves []func()
	for i := range 8 {
		key := proctest.Value(g.keys.find(g.key(fmt.Sprint("k", i), Rules{})))(t)
		n := 0
		for {
			leave, err := g.enter(key)
			if err != nil {
				if refused, ok := errors.AsType[*refusal](err); !ok || refused.status != 429 || refused.wait != time.Second {
					t.Errorf("key %d is refused by %v", i, err)
				}
				break
			}
			n, leaves = n+1, append(leaves, leave)
		}
		if n == 0 || n > mostAtOnce {
			t.Errorf("key %d has %d places", i, n)
		}
	}
	if status, _, body := g.ask("POST", "/api/gateway/openai/x", g.key("ninth", Rules{}), "{}"); status != 200 {
		t.Errorf("the ninth key: %d %s", status, body)
	}
	for _, leave := range leaves {
		leave()
	}
	proctest.Eventually(t, "all places are free", func() bool { return g.Status()["requests"] == "0" })
}

// While the server is upgraded there are two. Neither undoes what the other writes.
func TestTwoServersLoseNothing(t *testing.T) {
	dir := t.TempDir()
	gates := []*gate{open(t, dir, ""), open(t, dir, "")}
	const each = 10
	var wg sync.WaitGroup
	for i, g := range gates {
		wg.Go(func() {
			for n := range each {
				name := fmt.Sprintf("k%d-%d", i, n)
				key, _, err := g.CreateKey(name, Rules{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := g.reports.set(key.ID, Report{Status: "ready", Time: time.Now()}, g.keys.list); err != nil {
					t.Error(err)
				}
				if n%2 == 1 {
					if err := g.RevokeKey(name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	all := proctest.Value(gates[0].Keys())(t)
	if len(all) != each {
		t.Errorf("there are %d keys, not %d", len(all), each)
	}
	for _, k := range all {
		if k.Report.Status != "ready" {
			t.Errorf("the report of %s is lost", k.Name)
		}
	}
}

// A clock that was ahead when something was reported does not silence who counts again.
func TestAClockThatIsSetBackSilencesNobody(t *testing.T) {
	g := open(t, t.TempDir(), "")
	key := g.key("a", Rules{})
	g.ask("POST", "/api/sandbox/heal", key, `{"status":"broken","sequence":9}`)
	g.clock.pass(-24 * time.Hour)
	g.ask("POST", "/api/sandbox/heal", key, `{"status":"ready","sequence":1}`)
	if _, _, body := g.ask("GET", "/api/sandbox/status", key, ""); !strings.Contains(body, "ready") {
		t.Errorf("the status is %s", body)
	}
}
