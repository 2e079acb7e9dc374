package server

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestNothingOfTheServerIsOnTheNameOfASandbox: what a page of a program in a sandbox
// calls at its own name is the sandbox.
func TestNothingOfTheServerIsOnTheNameOfASandbox(t *testing.T) {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the program, ", r.URL.Path) }))
	defer program.Close()
	port := strconv.Itoa(program.Listener.Addr().(*net.TCPAddr).Port)
	s := serve(t, func(c *Config) { c.Domains = []string{"box.example"} })
	sandbox := proctest.Value(s.cfg.Driver.Create(t.Context(), driver.Spec{Network: driver.Network{Public: true}}))(t)
	info := proctest.Value(sandbox.Info(t.Context()))(t)
	id := string(info.ID)
	paths := map[string]int{ // on the name of envd's port
		"/health": 204, "/envs": 200, "/files?path=/etc/hostname": 200, "/": 404, "/-/healthz": 404, "/-/metrics": 404, "/-/readyz": 404,
		"/tend.v1.ProcessService/List": 404, "/v2/sandboxes": 404, "/v2/sandboxes/boxes": 404, "/sandboxes": 404, "/langsmith/x": 404, "/templates": 404, "/../sandboxes": 404, "//sandboxes": 404,
	}
	for _, protocol := range []string{"h1", "h2"} {
		c := s.client(t, protocol, "tcp")
		for _, domain := range []string{"box.example", "localhost:49983", "BOX.example."} {
			for path, want := range paths {
				if got, text := get(t, c, s.tcp+path, map[string]string{"Host": "49983-" + id + "." + domain}); got != want {
					t.Errorf("%s: %s of 49983-ID.%s: %d %s; want %d", protocol, path, domain, got, text, want)
				}
				if got, text := get(t, c, s.tcp+path, map[string]string{"Host": port + "-" + id + "." + domain}); got != 200 || !strings.HasPrefix(text, "the program, ") {
					t.Errorf("%s: %s of another port: %d %s", protocol, path, got, text)
				}
			}
			// Pages of such names are strangers to the server.
			for _, origin := range []string{"http://" + port + "-" + id + "." + domain} {
				for _, path := range []string{"/sandboxes", "/envs", "/v2/sandboxes/boxes"} {
					if got, text := get(t, c, s.tcp+path, map[string]string{"Origin": origin}); got != 403 {
						t.Errorf("%s: a page of %s gets %s: %d %s", protocol, origin, path, got, text)
					}
				}
			}
		}
		for path, want := range map[string]int{"/sandboxes": 200, "/v2/sandboxes": 200, "/v2/sandboxes/boxes": 200, "/templates/aliases/base": 200, "/snapshots": 501, "/health": 204} {
			if got, text := get(t, c, s.tcp+path, nil); got != want {
				t.Errorf("%s: %s: %d %s; want %d", protocol, path, got, text, want)
			}
		}
	}
}
