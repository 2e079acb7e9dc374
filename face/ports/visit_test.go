package ports_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/face"
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
	ticket := func() string { return s.secret.Ticket(s.closed, s.now()) }

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
		"one of another sandbox":        {s.secret.Ticket(s.public, s.now()), followed},
		"the visit of this sandbox":     {cookie.Value, followed},
		"one whose time is over":        {s.secret.Ticket(s.closed, s.now().Add(-face.TicketLifetime)), followed},
		"one that another page shows":   {ticket(), []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}},
		"no browser that says who asks": {ticket(), nil},
		"one with another end":          {"9" + ticket(), followed},
		"one in a frame":                {ticket(), []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}},
	} {
		if status, c := s.enter(s.closed, try.ticket, try.headers...); status != http.StatusForbidden || c != nil {
			t.Errorf("%s: status %d, %+v", what, status, c)
		}
	}
	if res, text := s.get("/.tend/open?ticket="+s.secret.Ticket(s.public, s.now()), append(followed, name(s.port, s.public))...); res.StatusCode != 200 || !strings.HasPrefix(text, "came to /.tend/open") {
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
	s.later.Store(int64(face.VisitLifetime + time.Second))
	if res, _ := s.get("/a", append(followed, at, visit)...); res.StatusCode != http.StatusForbidden {
		t.Errorf("after its time: %d", res.StatusCode)
	}
}
