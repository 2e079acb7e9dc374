package ports_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/ports"
)

// followed are the headers of a link that a person follows.
var followed = []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}

// enter shows a ticket, and returns the status and the cookie.
func (s *server) enter(id, ticket string, headers ...string) (int, *http.Cookie) {
	s.t.Helper()
	res, text := s.get("/.tend/open?ticket="+ticket, append(headers, name(s.port, id))...)
	if all := res.Cookies(); len(all) > 0 {
		c := all[0]
		if res.Header.Get("Location") != "/" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			s.t.Errorf("%+v, on to %q", c, res.Header.Get("Location"))
		}
		return res.StatusCode, c
	}
	if strings.Contains(text, "came to") {
		s.t.Errorf("the program got %s", text)
	}
	return res.StatusCode, nil
}

// A browser is let into the ports of a sandbox that is not public, by a ticket that is good once.
func TestATicketLetsABrowserIn(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "came to %s with cookies %q", r.URL, r.Header.Values("Cookie"))
	}))
	at := name(s.port, s.closed)
	ticket := func() string { return s.secret.Ticket(s.closed, "login", s.now()) }

	once := ticket()
	status, cookie := s.enter(s.closed, once, followed...)
	if status != http.StatusSeeOther || cookie == nil || cookie.Secure {
		t.Fatalf("status %d, %+v", status, cookie)
	}
	visit := "Cookie: x=1; tend-visit=" + cookie.Value + "; y=2; tend-visit=z"
	if _, c := s.enter(s.closed, ticket(), append(followed, "X-Forwarded-Proto: https")...); c == nil || !c.Secure {
		t.Errorf("behind TLS: %+v", c)
	}
	for what, try := range map[string]struct {
		ticket  string
		headers []string
	}{
		"one that was used":             {once, followed},
		"none":                          {"", followed},
		"one of another sandbox":        {s.secret.Ticket(s.public, "login", s.now()), followed},
		"the visit of this sandbox":     {cookie.Value, followed},
		"one whose time is over":        {s.secret.Ticket(s.closed, "login", s.now().Add(-protocol.TicketLifetime)), followed},
		"one that another page shows":   {ticket(), []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}},
		"no browser that says who asks": {ticket(), nil},
		"one with another end":          {"9" + ticket(), followed},
		"one in a frame":                {ticket(), []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}},
	} {
		if status, c := s.enter(s.closed, try.ticket, try.headers...); status != http.StatusForbidden || c != nil {
			t.Errorf("%s: status %d, %+v", what, status, c)
		}
	}
	if res, text := s.get("/.tend/open?ticket="+s.secret.Ticket(s.public, "login", s.now()), append(followed, name(s.port,
		s.public))...); res.StatusCode != 200 || !strings.HasPrefix(text, "came to /.tend/open") {
		t.Errorf("of a public sandbox it is the program's: %d %s", res.StatusCode, text)
	}

	for what, headers := range map[string][]string{
		"a page of the same name": {"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Origin: http://" + strings.TrimPrefix(at, "Host: ")},
		"a person":                {"Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"},
		"a link of another page":  followed,
	} {
		if res, text := s.get("/a", append(headers, at, visit)...); res.StatusCode != 200 || text != `came to /a with cookies ["x=1; y=2"]` {
			t.Errorf("%s: %d %s", what, res.StatusCode, text)
		}
	}
	for what, headers := range map[string][]string{
		"a page of another sandbox":             {"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"},
		"its WebSocket":                         {"Origin: http://3000-other.box.example", "Connection: Upgrade", "Upgrade: websocket"},
		"a page that a proxy takes for its own": {"Sec-Fetch-Site: same-origin", "Origin: http://3000-other.box.example"},
		"an image":                              {"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"},
		"nobody knows who":                      nil,
	} {
		if res, text := s.get("/a", append(headers, at, visit)...); res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d %s", what, res.StatusCode, text)
		}
	}
	byHeader := []string{"Sec-Fetch-Site: same-origin", "E2b-Sandbox-Id: " + s.closed, fmt.Sprint("E2b-Sandbox-Port: ", s.port), visit}
	if res, _ := s.get("/", byHeader...); res.StatusCode != http.StatusForbidden {
		t.Errorf("on the server's own origin: %d", res.StatusCode)
	}
	s.later.Store(int64(protocol.VisitLifetime + time.Second))
	if res, _ := s.get("/a", append(followed, at, visit)...); res.StatusCode != http.StatusForbidden {
		t.Errorf("after its time: %d", res.StatusCode)
	}
}

// A visit ends with the login that it comes from, and so does what it has opened.
func TestAVisitEndsWithItsLogin(t *testing.T) {
	ended, over := make(chan struct{}), atomic.Bool{}
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			return
		}
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}), func(c *ports.Config) {
		c.VisitorLasts = func(by string) bool { return by == "another" || by == "login" && !over.Load() }
	})
	visit := func(by string) []string {
		_, cookie := s.enter(s.closed, s.secret.Ticket(s.closed, by, s.now()), followed...)
		if cookie == nil {
			t.Fatalf("the login %q is not let in", by)
		}
		return append(followed, name(s.port, s.closed), "Cookie: tend-visit="+cookie.Value)
	}
	unused := s.secret.Ticket(s.closed, "login", s.now())
	theirs, others := visit("login"), visit("another")
	if res, _ := s.get("/", theirs...); res.StatusCode != http.StatusOK {
		t.Fatalf("with the login it is %d", res.StatusCode)
	}
	stream := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/stream", nil)
		if err == nil {
			for _, h := range theirs {
				key, value, _ := strings.Cut(h, ": ")
				req.Header.Set(key, value)
			}
			req.Host = req.Header.Get("Host")
			var res *http.Response
			if res, err = (&http.Transport{DisableKeepAlives: true}).RoundTrip(req); err == nil {
				over.Store(true)
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}
		stream <- err
	}()
	select {
	case err := <-stream:
		if err == nil {
			t.Error("a stream of the login is taken for whole")
		}
	case <-time.After(patience):
		t.Fatal("a stream of the login goes on")
	}
	<-ended
	if res, _ := s.get("/", theirs...); res.StatusCode != http.StatusForbidden {
		t.Errorf("after the login it is %d", res.StatusCode)
	}
	if status, c := s.enter(s.closed, unused, followed...); status != http.StatusForbidden || c != nil {
		t.Errorf("after the login its ticket is %d, %+v", status, c)
	}
	if res, _ := s.get("/", others...); res.StatusCode != http.StatusOK {
		t.Errorf("for another login it is %d", res.StatusCode)
	}
}
