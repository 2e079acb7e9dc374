package server

import (
	"net/http"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
)

// A worker that somebody has left in a browser for this origin is forgotten when its script is
// asked for, on each path and without a token.
func TestNoServiceWorkerIsServed(t *testing.T) {
	for name, token := range map[string]protocol.Token{"without a token": "", "with a token": "secret"} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c *Config) { c.Token = token })
			for _, path := range []string{"/", "/sw.js", "/ui/", "/files?path=/etc/hostname", "/envs"} {
				r, err := http.NewRequestWithContext(t.Context(), "GET", s.tcp+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Service-Worker", "script")
				r.Header.Set("Sec-Fetch-Site", "same-origin")
				res, err := s.client(t, "h1", "tcp").Do(r)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.StatusCode != 404 || res.Header.Get("Clear-Site-Data") != `"storage"` {
					t.Errorf("%s is %s, %q", path, res.Status, res.Header.Get("Clear-Site-Data"))
				}
			}
		})
	}
}
