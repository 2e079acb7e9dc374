package ports

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/protocol"
)

// A browser reaches the ports of a sandbox that is not public by a cookie: the page of this
// server opens PORT-ID.DOMAIN/.tend/open?ticket=… (protocol.Secret), which sets it. Programs in
// the sandbox never see it. It ends with the login to the page that it comes from, and so does
// what it has opened; without a login, with the token of the server. It is valid for requests of
// a page of the same name, and for links that a person follows: a page of another sandbox must not
// act with it. A browser reports the origin of a request over TLS and on localhost; elsewhere the
// cookie is not accepted.

const (
	openPath = "/.tend/open"
	// visitCookie is valid for one host name, PORT-ID.DOMAIN.
	visitCookie = "tend-visit"
	// maxShown cookies are checked: a page of another sandbox can set cookies with the same
	// name.
	maxShown = 8
	// maxUsed bounds the remembered tickets.
	maxUsed = 1 << 10
)

// tickets are the used tickets that have not expired. They are only in memory: a restarted
// server accepts one a second time, within its minute.
type tickets struct {
	mu   sync.Mutex
	used map[string]time.Time // when each is over
}

// redeem reports whether a ticket may be used, which is true once.
func (t *tickets) redeem(ticket string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, end := range t.used {
		if !now.Before(end) {
			delete(t.used, k)
		}
	}
	if _, ok := t.used[ticket]; ok || len(t.used) >= maxUsed {
		return false
	}
	if t.used == nil {
		t.used = map[string]time.Time{}
	}
	t.used[ticket] = now.Add(protocol.TicketLifetime)
	return true
}

// fetched reports whether the browser says what caused the request.
func fetched(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Site") != "" }

// visits reports whether a request has the cookie of a visit to this sandbox, and by whom.
func (p *Ports) visits(r *http.Request, id string) (by string, ok bool) {
	if !protocol.CausedHere(r) {
		return "", false
	}
	all := r.CookiesNamed(visitCookie)
	for _, c := range all[:min(len(all), maxShown)] {
		if by, ok := p.secret.VisitLasts(c.Value, id, p.now()); ok && p.visitorLasts(by) {
			return by, true
		}
	}
	return "", false
}

// open answers at openPath.
func (p *Ports) open(w http.ResponseWriter, r *http.Request, id string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	ticket := r.URL.Query().Get("ticket")
	by, good := p.secret.TicketLasts(ticket, id, p.now())
	switch {
	case !fetched(r):
		refuse(w, r, &refusal{SandboxID: id, Message: "The ports of this sandbox are opened for a browser by HTTPS or on localhost alone",
			Code: http.StatusForbidden})
		return
	case !protocol.CausedHere(r) || !good || !p.visitorLasts(by) || !p.tickets.redeem(ticket, p.now()):
		refuse(w, r, &refusal{SandboxID: id, Message: "This link was used, or is older than a minute: open the port from tend's page again",
			Code: http.StatusForbidden})
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: visitCookie, Value: p.secret.Visit(id, by, p.now()), Path: "/", MaxAge: int(protocol.VisitLifetime / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
