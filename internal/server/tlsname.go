package server

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// On the listeners of TLS, the server answers to these names, and to no other:
//
//	D            all that it has, as on localhost
//	api.D        all but its own web page
//	sandbox.D    the sandbox that the headers of E2B's clients name, and nothing of the server's own
//	PORT-ID.D    the same for the sandbox of the name
//
// All have one certificate, so a browser may send requests for one name on a connection that it has opened for
// another. The name of the request (Host, :authority, or that of an absolute target) must be the one of the
// handshake (SNI): else the answer is 421, and the client opens another connection.

// standing is what a request may reach by its name.
type standing int

const (
	asAny standing = iota
	asAPI
	asSandbox
)

type standingKey struct{}

func standingOf(r *http.Request) standing {
	n, _ := r.Context().Value(standingKey{}).(standing)
	return n
}

// overTLS makes a server one of a TLS listener.
func (s *Server) overTLS(srv *http.Server) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	srv.Protocols, srv.TLSConfig, srv.Handler = &protocols, s.cfg.Certificates, s.named(s.handler)
	srv.ErrorLog = log.New(&handshakeLog{errorLog: errorLog{s.log}}, "", 0)
}

// handshakeLog tells the operator what a client said of the certificate, which the client's own error often does not.
type handshakeLog struct {
	errorLog
	told atomic.Int64 // when it was last, unix seconds
}

// handshakeHints are what clients say, and what to do.
var handshakeHints = map[string]string{
	"unknown certificate authority": "the client does not trust the certificate: set its SSL_CERT_FILE, or NODE_EXTRA_CA_CERTS, as tend env e2b prints them",
	"bad certificate":               "the client does not accept the certificate: set its SSL_CERT_FILE, or NODE_EXTRA_CA_CERTS, as tend env e2b prints them",
	"expired certificate":           "the certificate has expired, or the client's clock is wrong; --tls-cert names the file, if there is one",
}

func (h *handshakeLog) Write(b []byte) (int, error) {
	_, said, ok := strings.Cut(strings.TrimSpace(string(b)), "remote error: tls: ")
	hint, known := handshakeHints[said]
	// Each connection of each client would say the same.
	if now, last := time.Now().Unix(), h.told.Load(); ok && known && now-last >= 60 && h.told.CompareAndSwap(last, now) {
		h.log.Warn("client refused the certificate", slog.String("said", said), slog.String("hint", hint))
	}
	return h.errorLog.Write(b)
}

func (s *Server) named(next http.Handler) http.Handler {
	domain := s.cfg.Domains[0]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := bareName(r.Host)
		label, below := strings.CutSuffix(host, "."+domain)
		may := asSandbox
		switch {
		case !below && host != domain, below && label != "api" && label != "sandbox" && !strings.Contains(label, "-"):
			s.misdirected(w, fmt.Sprintf("%.200q is no name of this server, whose domain is %s: set E2B_DOMAIN=%[2]s (tend env e2b prints it)",
				host, s.cfg.Authority()))
			return
		case bareName(r.TLS.ServerName) != host:
			s.misdirected(w, fmt.Sprintf("this connection was opened for %.200q, and the request is for %.200q: open a connection for each name",
				r.TLS.ServerName, host))
			return
		case !below:
			may = asAny
		case label == "api":
			may = asAPI
		}
		// No proxy is in front, so these are a caller's own words.
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			r.Header.Del(name)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), standingKey{}, may)))
	})
}

func (s *Server) misdirected(w http.ResponseWriter, text string) {
	s.metrics.Refused("name")
	refuse(w, http.StatusMisdirectedRequest, "misdirected_request", text)
}

// bareName is a host name without a port, in lower case, without the dot of the root.
func bareName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
