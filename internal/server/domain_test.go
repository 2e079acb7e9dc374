package server

import "testing"

// TestANameBelowADomainReachesTheServer: other names do not, while no token is set.
func TestANameBelowADomainReachesTheServer(t *testing.T) {
	s := serve(t, func(c *Config) { c.Domains = []string{"box.example"} })
	c := s.client(t, "h1", "tcp")
	for _, tt := range []struct {
		host, path string
		want       int
	}{
		{"api.box.example", "/-/healthz", 200},
		{"49983-none.box.example", "/-/healthz", 404}, // the name of a sandbox
		{"49983-none.box.example", "/health", 502},
		{"localhost", "/health", 204},
		{"box.example", "/health", 403},
		{"49983-none.evil.example", "/health", 403},
	} {
		if got, text := get(t, c, s.tcp+tt.path, map[string]string{"Host": tt.host}); got != tt.want {
			t.Errorf("%s of %s: %d %s; want %d", tt.path, tt.host, got, text, tt.want)
		}
	}
}

func TestCheckDomain(t *testing.T) {
	for _, d := range []string{"box.example", "a-1.b.c"} {
		if err := CheckDomain(d); err != nil {
			t.Error(err)
		}
	}
	for _, d := range []string{"", ".", "com", ".box.example", "box.example.", "Box.example", "box.example:80", "https://box.example", "*.example", "127.0.0.1", "::1", "box example.com", "bóx.example"} {
		if CheckDomain(d) == nil {
			t.Errorf("%q passes", d)
		}
	}
}
