package e2bapi

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/protocol"
)

// domain is below what the sandboxes have host names, with the port unless that is 443; nil: none that the
// caller could use. Programs on this machine can use localhost with the port, as package route
// finds sandboxes below it, too.
func (f *Face) domain(r *http.Request) *string {
	host, port := hostPort(r.Host)
	if d := f.cameBy(host); d != "" && overTLS(r) {
		return withPort(d, port)
	}
	if len(f.domains) > 0 {
		return withPort(f.domains[0], strconv.Itoa(cmp.Or(f.port, httpsPort)))
	}
	if a, err := netip.ParseAddr(host); !strings.EqualFold(host, "localhost") && (err != nil || !a.Unmap().IsLoopback()) {
		return nil
	}
	domain := net.JoinHostPort("localhost", cmp.Or(port, "80"))
	return &domain
}

const httpsPort = 443

func withPort(domain, port string) *string {
	if port != "" && port != strconv.Itoa(httpsPort) {
		domain += ":" + port
	}
	return &domain
}

// cameBy is the domain that a request's host name is below or at; "": none.
func (f *Face) cameBy(host string) string {
	for _, d := range f.domains {
		if host == d || strings.HasSuffix(host, "."+d) {
			return d
		}
	}
	return ""
}

// hostPort is a host name in lower case, without the dot of the root, and its port, or "".
func hostPort(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = strings.Trim(hostport, "[]"), ""
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), port
}

// overTLS reports whether a client that named a domain spoke TLS: with this server, or with a proxy in
// front, whose port is not the one that this server listens on.
func overTLS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	_, named := hostPort(r.Host)
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	_, ours := hostPort(local.String())
	return cmp.Or(named, "80") != ours
}

// origin is how the client reached this server. E2B's clients reach a domain by https alone, and not every proxy says
// that it was called so.
func (f *Face) origin(r *http.Request) string {
	if host, _ := hostPort(r.Host); f.publicURL == "" && r.Header.Get("X-Forwarded-Proto") == "" && f.cameBy(host) != "" && overTLS(r) {
		return "https://" + r.Host
	}
	return protocol.Origin(f.publicURL, r)
}
