package face

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"
)

// A browser cannot send the token of ports, and a link must not show it. So a link carries a
// ticket, which is good for a minute, and who shows it gets a visit for its cookie.

const (
	// TicketLifetime is how long a ticket is valid.
	TicketLifetime = time.Minute
	// VisitLifetime is how long a browser has access.
	VisitLifetime = 12 * time.Hour
)

// Ticket lets its holder begin a visit to the ports of a sandbox, until TicketLifetime
// after now.
func (s *Secret) Ticket(id string, now time.Time) string {
	return s.until("ports ticket", id, now.Add(TicketLifetime))
}

// TicketLasts reports whether a ticket is for this sandbox and has not expired.
func (s *Secret) TicketLasts(ticket, id string, now time.Time) bool {
	return s.lasts("ports ticket", ticket, id, now)
}

// Visit lets a browser reach the ports of a sandbox, until VisitLifetime after now.
func (s *Secret) Visit(id string, now time.Time) string {
	return s.until("ports visit", id, now.Add(VisitLifetime))
}

// VisitLasts reports whether a visit is for this sandbox and has not expired.
func (s *Secret) VisitLasts(visit, id string, now time.Time) bool {
	return s.lasts("ports visit", visit, id, now)
}

// until signs an ID, a time and a nonce, which are in the text: "TIME.NONCE.SIGNATURE". No two
// are equal.
func (s *Secret) until(purpose, id string, end time.Time) string {
	if s == nil {
		return ""
	}
	at, nonce := strconv.FormatInt(end.Unix(), 10), rand.Text()
	return at + "." + nonce + "." + s.Sign(purpose, id, at, nonce)
}

func (s *Secret) lasts(purpose, shown, id string, now time.Time) bool {
	at, rest, _ := strings.Cut(shown, ".")
	nonce, signature, _ := strings.Cut(rest, ".")
	end, err := strconv.ParseInt(at, 10, 64)
	return s != nil && err == nil && Token(s.Sign(purpose, id, at, nonce)).Matches(signature) && now.Before(time.Unix(end, 0))
}
