package protocol

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Guard refuses requests that a foreign web page could have made a browser
// send. Without a token, everything that reaches the port can run programs. A page
// can reach a loopback port in two ways, and both are closed here: by a request to
// another origin (shown by the Origin header), and by DNS rebinding, where the page's own
// name is made to resolve to 127.0.0.1 (shown by the Host header).
//
// A page of another port of this machine is as foreign as one of another site: any user
// may listen there.
//
// The zero value guards every request.
type Guard struct {
	// Protected reports whether callers must show a secret, which no foreign
	// page has. The guard then lets all origins and hosts pass. nil: never.
	Protected func() bool
	// Domains are DNS names below which this server may be called without a token,
	// in lower case; by TLS, whose certificate no other page has, also by these names
	// themselves. Pages from there are strangers all the same: they may come from a program
	// in a sandbox.
	Domains []string
	// Origins of pages that are let in beside the server's own, as [ParseOrigin] returns
	// them.
	Origins []string
	// Off disables the guard (an operator's explicit wish).
	Off bool
}

// Check returns nil for a request that may pass, or an error that says why
// it may not and what to do.
func (g *Guard) Check(r *http.Request) error {
	if g.Off || g.Protected != nil && g.Protected() || onUnixSocket(r) {
		return nil
	}
	host := hostname(r.Host)
	if !g.knownHost(host) && (r.TLS == nil || !slices.Contains(g.Domains, strings.ToLower(strings.TrimSuffix(host, ".")))) {
		return fmt.Errorf("the host name %q may be a web page's in disguise (DNS rebinding); call this server as localhost or by address, or set a token", host)
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		// Images, scripts and the like come without an Origin. A link that
		// somebody follows is no more than an address typed by hand.
		site := r.Header.Get("Sec-Fetch-Site")
		followed := r.Header.Get("Sec-Fetch-Mode") == "navigate" && onlyAsks(r)
		if (site == "cross-site" || site == "same-site") && !followed {
			return errors.New("requests from web pages of other sites and ports are refused while no token is set; set a token, or open the page from this server")
		}
		return nil
	}
	if g.knownOrigin(origin, r.Host) {
		return nil
	}
	return fmt.Errorf("requests from web pages of %.200q are refused while no token is set; set a token, or open the page from this server, "+
		"or, if the page is yours, name it: tend serve --allow-origin ORIGIN", origin)
}

// Wrap answers 403 with the reason where Check refuses.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knownHost accepts what no attacker's DNS can make up: addresses, localhost
// and names below the domains that the operator listed. A missing Host (HTTP/1.0) passes, as
// browsers always send one.
func (g *Guard) knownHost(host string) bool {
	if host == "" || localName(host) {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return g.below(host)
}

// knownOrigin is stricter than knownHost: it accepts the page that has the name and port
// that are called, and those that the operator has named.
func (g *Guard) knownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err == nil && u.Host != "" && strings.EqualFold(u.Host, host) {
		return true
	}
	named, err := ParseOrigin(origin)
	return err == nil && slices.Contains(g.Origins, named)
}

func (g *Guard) below(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, d := range g.Domains {
		if strings.HasSuffix(host, "."+d) {
			return true
		}
	}
	return false
}

func localName(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func hostname(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.Trim(hostport, "[]")
}

// onUnixSocket: no browser can be made to call a unix socket.
func onUnixSocket(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && a.Network() == "unix"
}
