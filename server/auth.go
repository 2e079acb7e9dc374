package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/tend-run/tend/face"
)

// peer is what the kernel says about the other end of a unix socket.
type peer struct {
	uid int
	err error // the kernel would not say
}

type peerKey struct{}

// withPeer notes the peer of a unix connection for its requests.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, err := peerUID(u)
	return context.WithValue(ctx, peerKey{}, peer{uid: uid, err: err})
}

// trusted: the request came over a unix socket from our own user or root.
// local: it came over a unix socket.
func trusted(r *http.Request) (trusted, local bool) {
	p, local := r.Context().Value(peerKey{}).(peer)
	return local && p.err == nil && (p.uid == 0 || p.uid == os.Geteuid()), local
}

// admit refuses callers on a unix socket that the kernel says are somebody
// else. The socket's mode keeps them out already; this holds if it was changed.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ok, local := trusted(r); local && !ok {
			s.metrics.Refused("peer")
			refuse(w, http.StatusForbidden, "permission_denied",
				fmt.Sprintf("this socket is for user %d and root; run your own tend serve, or ask for a token and use TCP", os.Geteuid()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// needsToken guards the paths that take the bearer token. The unix socket's
// own users need none.
func (s *Server) needsToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := s.token()
		if ok, _ := trusted(r); !ok && token.Set() && !token.Matches(face.Bearer(r)) {
			s.metrics.Refused("token")
			w.Header().Set("WWW-Authenticate", `Bearer realm="tend"`)
			text := "this server needs a token: send Authorization: Bearer <token> (set TEND_TOKEN for the command line)"
			if face.Bearer(r) != "" {
				text = "the token is not the one of this server (check TEND_TOKEN)"
			}
			refuse(w, http.StatusUnauthorized, "unauthenticated", text)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// token is the one that callers must show now: the operator's, else the one
// that envd's /init has set. Once /init has set one, no other path on the same
// port may be a way around it.
func (s *Server) token() face.Token { return s.envd.AccessToken() }

// guarded refuses what a foreign web page may have caused, while no token
// keeps it out.
func (s *Server) guarded(next http.Handler) http.Handler {
	guard := face.Guard{Off: s.cfg.Insecure, Protected: func() bool { return s.token().Set() }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Check(r); err != nil {
			s.metrics.Refused("origin")
			refuse(w, http.StatusForbidden, "permission_denied", err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
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
