package protocol

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// FuzzGuard: whatever Host and Origin are, no foreign name passes.
func FuzzGuard(f *testing.F) {
	for _, seed := range [][2]string{
		{"localhost:49983", ""}, {"127.0.0.1", "http://localhost:3000"}, {"[::1]:80", "http://[::1]"}, {"evil.example", ""},
		{"localhost.evil.example", "null"}, {"localhost", "https://evil.example"}, {"127.0.0.1.evil.example:80", "file://"},
		{"LOCALHOST.", "http://x.localhost"}, {"[::1%25lo]:1", "http://evil@localhost"}, {"49983-x.box.example", "http://8080-x.box.example"}, {"x.BOX.example.:1", ""}, {"evilbox.example", ""}, {"0x7f.1", "http://localhost@evil.example"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, host, origin string) {
		r := httptest.NewRequest("POST", "http://x/", nil)
		r.Host, r.Header = host, http.Header{}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if new(Guard).Check(r) != nil {
			below := &Guard{Domains: []string{"box.example"}}
			if err := below.Check(r); err == nil && !strings.HasSuffix(strings.ToLower(strings.TrimSuffix(hostname(host), ".")), ".box.example") {
				t.Errorf("the host %q passed as one below a domain", host)
			}
			return
		}
		name := strings.ToLower(strings.TrimSuffix(hostname(host), "."))
		_, err := netip.ParseAddr(hostname(host))
		if host != "" && err != nil && name != "" && name != "localhost" && !strings.HasSuffix(name, ".localhost") {
			t.Errorf("the host %q passed", host)
		}
		if u, err := url.Parse(origin); origin != "" && (err != nil || !strings.EqualFold(u.Host, host)) {
			t.Errorf("the origin %q passed at the host %q", origin, host)
		}
	})
}

// Pages of other ports and names are strangers, those of programs in sandboxes too; who named a
// page has let in that one alone.
func TestOnlyOwnAndNamedPagesAreKnown(t *testing.T) {
	for origin, known := range map[string]bool{
		"http://localhost:49983": true, "HTTP://LOCALHOST:49983": true,
		"http://localhost:5173": true, "https://app.localhost": true, "https://app.localhost:443": true,
		"http://localhost": false, "http://localhost:3000": false, "https://localhost:5173": false, "http://127.0.0.1:49983": false, "http://[::1]:49983": false,
		"http://app.localhost": false, "http://localhost:51730": false, "http://x.localhost:5173": false, "null": false, "file://": false, "localhost:49983": false, "//": false,
		"http://3000-ia1t1p1tpyh0nk2fnhd2.localhost:49983":           false,
		"http://3000-3d0ca315-aff9-4fc2-be61-3b76b9a2d798.localhost": false,
	} {
		r := httptest.NewRequest("POST", "http://localhost:49983/", nil)
		r.Header.Set("Origin", origin)
		if err := (&Guard{Origins: []string{"http://localhost:5173", "https://app.localhost"}}).Check(r); (err == nil) != known {
			t.Errorf("%s: %v", origin, err)
		}
	}
}

// The domain itself is a name of this server by TLS alone: without it, its owner could be a stranger whose name was
// made to resolve to this machine.
func TestTheDomainItselfIsKnownByTLSAlone(t *testing.T) {
	g := &Guard{Domains: []string{"box.example"}}
	for host, known := range map[string]bool{"box.example:8443": true, "BOX.example.": true, "evil.example": false, "evilbox.example": false} {
		r := httptest.NewRequest("GET", "https://box.example/", nil) // it has a TLS state
		r.Host = host
		if err := g.Check(r); (err == nil) != known {
			t.Errorf("%s by TLS: %v", host, err)
		}
		if r.TLS = nil; g.Check(r) == nil {
			t.Errorf("%s passes without TLS", host)
		}
	}
}
