package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/tend-run/tend/internal/lib/budget"
	userpeer "github.com/tend-run/tend/internal/lib/peercred"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	where "github.com/tend-run/tend/internal/sandbox/route"
)

// peer is what the kernel says about the user at the other end of a connection.
// On TCP it is asked when the first request needs it, and at once if no token
// stands in for it: a client that has left has no user any more.
type peer struct {
	unix bool
	ask  func() (uid int, err error)
	// member reports whether it is of the operators' group, on a unix socket. nil: there is none.
	member func() bool

	once sync.Once
	uid  int
	owns bool
	err  error // the kernel would not say
}

type peerKey struct{}

// own reports whether the peer is the server's own user, root, or one of the operators' group.
func (p *peer) own() bool {
	p.once.Do(func() {
		p.uid, p.err = p.ask()
		p.owns = p.err == nil && (p.uid == 0 || p.uid == os.Geteuid() || p.unix && p.member != nil && p.member())
	})
	return p.owns
}

// withPeer notes the peer of a connection for its requests. One that a stream
// gave back has the same peer as before.
func (s *Server) withPeer(ctx context.Context, c net.Conn) context.Context {
	note := protocol.NoteOf(ctx)
	if note != nil {
		if p, ok := (*note).(*peer); ok {
			return context.WithValue(ctx, peerKey{}, p)
		}
	}
	p := &peer{unix: c.LocalAddr().Network() == "unix", ask: func() (int, error) { return userpeer.UID(wire(c)) },
		member: func() bool { return s.cfg.Group > 0 && userpeer.Member(c, s.cfg.Group) }}
	if p.unix || !s.admitsAll() {
		p.own()
	}
	if note != nil {
		*note = p
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// wire is the connection below TLS.
func wire(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// admitsAll reports whether every user that reaches a TCP port may call: a token
// decides, or the operator has asked for it.
func (s *Server) admitsAll() bool { return s.cfg.Insecure || s.token().Set() }

// Trusted reports whether a request came over a unix socket from the server's own user
// or root. They need no token.
func Trusted(r *http.Request) bool {
	p, ok := r.Context().Value(peerKey{}).(*peer)
	return ok && p.unix && p.own()
}

// admit refuses callers that the kernel says are somebody else: on a unix
// socket, whose mode keeps them out already unless it was changed, and on a TCP
// port for which no token is needed, where nothing else would.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, known := r.Context().Value(peerKey{}).(*peer)
		switch {
		case known && p.own():
		case where.Inside(r.Context()) != "": // its sandbox's token is asked for
		case module.AtDoor(r.Context()): // a login is asked for
		case known && p.unix:
			s.metrics.Refused("peer")
			refuse(w, http.StatusForbidden, "permission_denied",
				fmt.Sprintf("this socket is for user %d and root; run your own tend serve, or ask for a token and use TCP", os.Geteuid()))
			return
		case s.admitsAll() || s.routes.of(r).openTo(r.Method):
		default:
			s.metrics.Refused("peer")
			refuse(w, http.StatusForbidden, "permission_denied", strangerText(p))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// openTo reports whether a route needs no token for this method: its answers hold no
// facts.
func (rt route) openTo(method string) bool {
	return rt.Access == module.Open && (method == http.MethodGet || method == http.MethodHead)
}

// strangerText says why a caller on TCP is not admitted, and what to do.
func strangerText(p *peer) string {
	why := "the user who calls is not known"
	switch {
	case p == nil:
	case p.err != nil:
		why += ": " + p.err.Error()
	default:
		why = fmt.Sprintf("you are user %d", p.uid)
	}
	return fmt.Sprintf("without a token this port is for user %d and root, and %s; "+
		"run your own tend serve, or give this one a token (--token-file), or open it to everybody on this machine (--insecure)",
		os.Geteuid(), why)
}

// needsToken guards the paths that take the bearer token. The unix socket's
// own users need none, and neither does a browser that is logged in.
func (s *Server) needsToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := s.token()
		login := module.Login{Role: module.Owner}
		if (token.Set() || module.AtDoor(r.Context())) && !Trusted(r) && !token.Matches(protocol.Bearer(r)) {
			login = module.Login{}
			if s.cfg.Session != nil {
				login = s.cfg.Session(r)
			}
		}
		switch login.Role {
		case module.Owner:
		case module.Reader:
			if reads := s.routes.of(r).Reads; reads == nil || !reads(r.URL.Path) {
				s.metrics.Refused("reader")
				refuse(w, http.StatusForbidden, "permission_denied",
					"this login only reads; log in with the token, or by a link of tend ui, to change something")
				return
			}
			budget.Of(r.Context()).For(budget.Readers)
			r = r.WithContext(module.WithReader(r.Context()))
		default:
			s.metrics.Refused("token")
			w.Header().Set("WWW-Authenticate", `Bearer realm="tend"`)
			if login.Challenge != "" {
				w.Header().Add("WWW-Authenticate", login.Challenge)
			}
			text := "this server needs a token: send Authorization: Bearer <token> (set TEND_TOKEN for the command line)"
			if protocol.Bearer(r) != "" {
				text = "the token is not the one of this server (check TEND_TOKEN)"
			}
			refuse(w, http.StatusUnauthorized, "unauthenticated", text)
			return
		}
		if login.ID != "" {
			r = r.WithContext(module.WithLogin(r.Context(), login.ID))
		}
		if login.Body != nil {
			r = r.WithContext(r.Context()) // a copy, as in paced
			r.Body = login.Body
		}
		if login.Lasts != nil {
			s.logins.Serve(next, w, r, login.Lasts)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// token is the one that callers must show now: the operator's, else the one
// that a part has been given. Once a part has one, no other path on the same port
// may be a way around it.
func (s *Server) token() protocol.Token {
	if s.cfg.TokenNow == nil {
		return s.cfg.Token
	}
	return s.cfg.TokenNow()
}

// guarded refuses what a foreign web page may have caused, while no token
// keeps it out.
func (s *Server) guarded(next http.Handler) http.Handler {
	guard := protocol.Guard{Domains: s.cfg.Domains, Origins: s.cfg.Origins, Off: s.cfg.Insecure,
		Protected: func() bool { return s.token().Set() }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Check(r); err != nil && !s.hasSecret(r.URL.Path) {
			s.metrics.Refused("origin")
			refuse(w, http.StatusForbidden, "permission_denied", err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hasSecret reports whether a part says that a path holds a secret. Such a path may
// match no route yet, where the mux is going to redirect it.
func (s *Server) hasSecret(path string) bool {
	for _, has := range s.secrets {
		if has(path) {
			return true
		}
	}
	return false
}

// refuse answers in the form that Connect clients read and people understand.
func refuse(w http.ResponseWriter, status int, code, text string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	body, err := json.Marshal(map[string]string{"code": code, "message": text})
	if err != nil { // strings always encode
		body = nil
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}
