package page

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
)

const (
	// lifetime of a session.
	lifetime = 7 * 24 * time.Hour
	// maxSessions are kept; a new one ends the oldest.
	maxSessions = 256
	// maxFile bounds the file of the sessions in bytes.
	maxFile = 1 << 20
)

// session is what is kept of a login: nothing that logs in.
type session struct {
	// Hash of the ID, which the cookie has.
	Hash string `json:"hash"`
	// Token is a signature of the server's token at the login, and of what the login may do.
	Token string `json:"token"`
	// Reads: it is for reading alone.
	Reads bool      `json:"reads,omitempty"`
	Until time.Time `json:"until"`
}

// sessions are the logins that last. All methods may be called concurrently.
type sessions struct {
	secret *protocol.Secret
	token  func() protocol.Token
	path   string
	now    func() time.Time
	// run is this server. A proof for another one is worth nothing.
	run string

	mu  sync.Mutex
	all []session // the oldest first
	// counts are those of the proofs for this run, by the hashes of sessions in all.
	counts map[string]*counts
}

// openSessions reads the sessions of before. A file that is damaged ends them all.
func openSessions(secret *protocol.Secret, token func() protocol.Token, path string, now func() time.Time) (*sessions, error) {
	s := &sessions{secret: secret, token: token, path: path, now: now, run: rand.Text(), counts: map[string]*counts{}}
	data, err := atomicfile.Read(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the page's sessions: %w", err)
	case json.Unmarshal(data, &s.all) != nil:
		s.all = nil
	}
	return s, nil
}

// begin makes a session and returns its ID, which its cookie has.
func (s *sessions) begin(reads bool) (id string, err error) {
	id = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(s.all), func(v session) bool { return !s.lasts(v) })
	if n := len(next) - maxSessions + 1; n > 0 {
		next = next[n:]
	}
	next = append(next, session{Hash: s.hash(id), Token: s.mark(reads), Reads: reads, Until: s.now().Add(lifetime)})
	return id, s.keep(next)
}

// end ends the session with an ID, on the disk too.
func (s *sessions) end(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := s.hash(id)
	return s.keep(slices.DeleteFunc(slices.Clone(s.all), func(v session) bool { return v.Hash == hash }))
}

// endReaders ends all sessions that read alone, on the disk too, and returns how many lasted.
func (s *sessions) endReaders() (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(s.all), func(v session) bool {
		if v.Reads && s.lasts(v) {
			n++
		}
		return v.Reads
	})
	return n, s.keep(next)
}

// keep makes next the sessions, once the disk has them.
func (s *sessions) keep(next []session) error {
	data, err := json.Marshal(next)
	if err == nil {
		err = atomicfile.Synced(s.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the page's sessions: %w", err)
	}
	s.all = next
	maps.DeleteFunc(s.counts, func(hash string, _ *counts) bool {
		return !slices.ContainsFunc(next, func(v session) bool { return v.Hash == hash })
	})
	return nil
}

// role is that of the session whose ID has this hash, if it lasts.
func (s *sessions) role(hash string) module.Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roleLocked(hash)
}

// roleLocked is role while mu is held.
func (s *sessions) roleLocked(hash string) module.Role {
	n := slices.IndexFunc(s.all, func(v session) bool { return v.Hash == hash && s.lasts(v) })
	switch {
	case n < 0:
		return module.Nobody
	case s.all[n].Reads:
		return module.Reader
	}
	return module.Owner
}

func (s *sessions) lasts(v session) bool {
	return s.now().Before(v.Until) && protocol.Token(s.mark(v.Reads)).Matches(v.Token)
}

func (s *sessions) hash(id string) string { return s.secret.Sign("page session", id) }

// key is that by which the page proves the session with this ID. It leaves this server once, in
// the answer to the login.
func (s *sessions) key(id string) string { return s.secret.Sign("page key", id) }

// tag is in the name of its cookie.
func (s *sessions) tag(id string) string { return s.secret.Sign("page cookie", id)[:tagLength] }

// mark signs the token. A login that reads alone has another mark: a server from before
// there were such logins, which does not know Reads, takes it for none instead of for an owner's.
func (s *sessions) mark(reads bool) string {
	if reads {
		return s.secret.Sign("page token of a reader", string(s.token()))
	}
	return s.secret.Sign("page token", string(s.token()))
}

// maxCookies are looked at.
const maxCookies = 8

// found is the session that a request proves.
type found struct {
	id, hash string
	role     module.Role
	body     io.ReadCloser // as [module.Login] has it
	least    uint64        // for Nobody: what the next count must be greater than
}

// of finds the session that a request proves; with the role Nobody: none, or the page itself has
// not caused the request. A proof counts once. A server on another port of this host, whose
// cookies come along, may have set some of the same name, which stand before ours if their path
// is longer.
func (s *sessions) of(r *http.Request) found {
	p, ok := readProof(r)
	if !ok || p.run != s.run || !sameOrigin(r) {
		return found{}
	}
	all := r.CookiesNamed(cookieName(r, p.tag))
	for _, c := range all[:min(len(all), maxCookies)] {
		if c.Value == "" || !p.by(s.key(c.Value), r) {
			continue
		}
		f := found{id: c.Value, hash: s.hash(c.Value)}
		if f.role, f.least = s.use(f.hash, p.count); f.role != module.Nobody {
			f.body = p.checked(r)
		}
		return f
	}
	return found{}
}

// use returns the role of the session whose ID has this hash, for the one who proves it with a
// count that is new; and else, what a new one is greater than.
func (s *sessions) use(hash string, count uint64) (role module.Role, least uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if role = s.roleLocked(hash); role == module.Nobody {
		return module.Nobody, 0
	}
	if s.counts[hash] == nil {
		s.counts[hash] = new(counts)
	}
	ok, least := s.counts[hash].use(count)
	if !ok {
		return module.Nobody, least
	}
	return role, 0
}

// sameOrigin refuses what a browser says that another page has caused. What says
// nothing is no browser, or an old one: those are kept out by the proof.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// secure reports whether the browser speaks TLS, with a proxy before this server. A
// client that lies about it harms its own cookie alone.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// tagLength is that of what follows the prefix and a hyphen in the name of a cookie.
const tagLength = 8

// cookieName is that of the login with a tag. Whoever serves another port of this host sets
// cookies for this one, too: nobody replaces a cookie whose name he cannot guess.
func cookieName(r *http.Request, tag string) string { return cookiePrefix(r) + "-" + tag }

// forget has the browser forget the cookies of all its logins here.
func forget(w http.ResponseWriter, r *http.Request) {
	prefix, done := cookiePrefix(r), map[string]bool{}
	for _, c := range r.Cookies() {
		tag, tagged := strings.CutPrefix(c.Name, prefix+"-")
		if c.Name != prefix && !(tagged && isTag(tag)) || done[c.Name] {
			continue
		}
		done[c.Name] = true
		http.SetCookie(w, cookie(r, c.Name, "", 0))
		if len(done) == maxForgotten {
			return
		}
	}
}

// maxForgotten cookies are forgotten at a time: each is a line of the answer.
const maxForgotten = 16

func isTag(s string) bool {
	return len(s) == tagLength && !strings.ContainsFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
}

// cookiePrefix has the port in it: browsers keep the cookies of all ports of a
// host together, and a machine may have several daemons.
func cookiePrefix(r *http.Request) string {
	name := "tend-session"
	if _, port, err := net.SplitHostPort(r.Host); err == nil && isPort(port) {
		name += "-" + port
	}
	if secure(r) {
		return "__Host-" + name
	}
	return name
}

func isPort(s string) bool {
	return s != "" && len(s) <= 5 && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

func cookie(r *http.Request, name, value string, age time.Duration) *http.Cookie {
	c := &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()), HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: secure(r)}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}
