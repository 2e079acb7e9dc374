package face

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
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
	})
}
