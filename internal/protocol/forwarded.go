package protocol

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
)

// Proxies are the addresses of the proxies in front of this server whose X-Forwarded-* and
// Forwarded are believed, beside this machine's own: loopback and unix sockets.
type Proxies []netip.Prefix

// ParseProxies reads addresses and networks: 10.0.0.7, 10.0.0.0/8, fd00::/8. The error names the first that is neither.
func ParseProxies(texts []string) (Proxies, error) {
	var all Proxies
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%.80q is neither an address nor a network, such as 10.0.0.7 or 10.0.0.0/8", text)
		}
		all = append(all, p)
	}
	return all, nil
}

// Forward says to the program behind by X-Forwarded-For, -Host and -Proto who asks it. What a proxy in front has said of the
// client stays, and this server adds itself; what anybody else says is dropped. It is for the Rewrite of an
// [httputil.ReverseProxy], whose Out has none of these headers.
func (all Proxies) Forward(pr *httputil.ProxyRequest) {
	const chain, host, proto, standard = "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"
	believed := all.believes(pr.In)
	if believed {
		pr.Out.Header[chain] = pr.In.Header[chain]
	}
	pr.SetXForwarded()
	if !believed {
		return
	}
	for _, name := range []string{host, proto, standard} {
		if said := pr.In.Header[name]; len(said) > 0 {
			pr.Out.Header[name] = said
		}
	}
}

func (all Proxies) believes(r *http.Request) bool {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && at.Network() == "unix" {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	a := peer.Addr().Unmap()
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return a.IsLoopback()
}
