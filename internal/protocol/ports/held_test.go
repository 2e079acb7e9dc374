package ports_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol/ports"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A hundred answers of a program in one sandbox that nobody reads hold its share, and no more;
// those of another sandbox pass.
func TestAnswersThatAreNotReadHoldAShare(t *testing.T) {
	const whole, clients = 8 << 20, 100
	held := budget.New(whole)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			fmt.Fprint(w, "ok")
			return
		}
		for n := range 100 { // 100 KiB, as far as the text is counted
			w.Header().Set(fmt.Sprint("X-Long-", n), strings.Repeat("x", 1<<10))
		}
		piece := make([]byte, 64<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}), func(c *ports.Config) { c.Budget = held })
	of := budget.Sandbox(s.public)
	tr := &http.Transport{DisableKeepAlives: true}
	passed, refused := 0, 0
	var open []io.Closer
	for range clients {
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "GET", s.url+"/long", nil))(t)
		_, req.Host, _ = strings.Cut(name(s.port, s.public), ": ")
		res := proctest.Value(tr.RoundTrip(req))(t)
		switch res.StatusCode {
		case http.StatusOK:
			passed++
			open = append(open, res.Body)
		case http.StatusServiceUnavailable:
			refused++
			text := proctest.Value(io.ReadAll(res.Body))(t)
			res.Body.Close()
			if res.Header.Get("Retry-After") != "1" || !strings.Contains(string(text), "of sandbox "+s.public) {
				t.Errorf("refused with Retry-After %q and %.300s", res.Header.Get("Retry-After"), text)
			}
		default:
			t.Errorf("%s", res.Status)
		}
		if got := held.UsedBy(of); got > whole/4 {
			t.Fatalf("one sandbox holds %d bytes of %d", got, whole)
		}
	}
	if got := held.UsedBy(of); passed == 0 || refused == 0 || got < int64(passed)*(160<<10) {
		t.Errorf("%d passed and hold %d bytes, %d were refused", passed, got, refused)
	}
	token := "E2b-Traffic-Access-Token: " + string(s.secret.TrafficToken(s.closed))
	if res, text := s.get("/short", name(s.port, s.closed), token); res.StatusCode != 200 || text != "ok" {
		t.Errorf("another sandbox's: %s %.200s", res.Status, text)
	}
	for _, body := range open {
		body.Close()
	}
	proctest.Eventually(t, "all is given back", func() bool { return held.Used() == 0 })
}
