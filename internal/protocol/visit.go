package protocol

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
// after now. by names the login that it is of, and is in the text.
func (s *Secret) Ticket(id, by string, now time.Time) string {
	return s.until("ports ticket", id, by, now.Add(TicketLifetime))
}

// TicketLasts reports whether a ticket is for this sandbox and has not expired, and whose it is.
func (s *Secret) TicketLasts(ticket, id string, now time.Time) (by string, ok bool) {
	return s.lasts("ports ticket", ticket, id, now)
}

// Visit lets a browser reach the ports of a sandbox, until VisitLifetime after now. by is that
// of the ticket.
func (s *Secret) Visit(id, by string, now time.Time) string {
	return s.until("ports visit", id, by, now.Add(VisitLifetime))
}

// VisitLasts reports whether a visit is for this sandbox and has not expired, and whose it is.
func (s *Secret) VisitLasts(visit, id string, now time.Time) (by string, ok bool) {
	return s.lasts("ports visit", visit, id, now)
}

// until signs an ID, a login, a time and a nonce: "TIME.NONCE.LOGIN.SIGNATURE". No two are
// equal.
func (s *Secret) until(purpose, id, by string, end time.Time) string {
	if s == nil {
		return ""
	}
	at, nonce := strconv.FormatInt(end.Unix(), 10), rand.Text()
	return strings.Join([]string{at, nonce, by, s.Sign(purpose, id, at, nonce, by)}, ".")
}

func (s *Secret) lasts(purpose, shown, id string, now time.Time) (by string, ok bool) {
	fields := strings.Split(shown, ".")
	if s == nil || len(fields) != 4 {
		return "", false
	}
	at, nonce, by, signature := fields[0], fields[1], fields[2], fields[3]
	end, err := strconv.ParseInt(at, 10, 64)
	return by, err == nil && Token(s.Sign(purpose, id, at, nonce, by)).Matches(signature) && now.Before(time.Unix(end, 0))
}
