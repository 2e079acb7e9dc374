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

// The page of a program in a sandbox is a stranger, whatever form the sandbox's ID has.
func TestPagesOfSandboxesAreStrangers(t *testing.T) {
	for origin, known := range map[string]bool{
		"http://localhost:49983": true, "http://app.localhost": true, "http://my-app.localhost:3000": true,
		"http://3000-ia1t1p1tpyh0nk2fnhd2.localhost:49983":             false,
		"http://3000-IA1T1P1TPYH0NK2FNHD2.LOCALHOST.:49983":            false,
		"http://3000-3d0ca315-aff9-4fc2-be61-3b76b9a2d798.localhost":   false,
		"http://x.3000-ia1t1p1tpyh0nk2fnhd2.localhost":                 false,
		"http://3000-an-id-of-a-form-that-comes-later.localhost:49983": false,
	} {
		r := httptest.NewRequest("POST", "http://localhost/", nil)
		r.Header.Set("Origin", origin)
		if err := new(Guard).Check(r); (err == nil) != known {
			t.Errorf("%s: %v", origin, err)
		}
	}
}
