package ports_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol/ports"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/route"
)

// A port that the server answers for itself is guarded, and wakes a sandbox, as those of programs do.
func TestAPortOfTheServersOwn(t *testing.T) {
	const port = 49999
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the program") }), func(c *ports.Config) {
		c.Own = func(t *route.Target) http.Handler {
			if t.Port != port {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "own of ", t.ID, " ", r.URL.Path) })
		}
	})
	traffic := func(id string) string { return "E2b-Traffic-Access-Token: " + string(s.secret.TrafficToken(id)) }
	for _, tt := range []struct {
		name    string
		headers []string
		status  int
		says    string
	}{
		{"by name", []string{name(port, s.public)}, 200, "own of " + s.public + " /x"},
		{"by headers", []string{"E2b-Sandbox-Id: " + s.public, "E2b-Sandbox-Port: " + strconv.Itoa(port)}, 200, "own of " + s.public + " /x"},
		{"another port", []string{name(s.port, s.public)}, 200, "the program"},
		{"a closed sandbox", []string{name(port, s.closed)}, 403, "token"},
		{"a closed sandbox, with its token", []string{name(port, s.closed), traffic(s.closed)}, 200, "own of " + s.closed},
		{"one that is gone", []string{name(port, s.gone)}, 502, "The sandbox was not found"},
		{"one that sleeps", []string{name(port, s.asleep), traffic(s.asleep)}, 200, "own of " + s.asleep},
	} {
		if res, text := s.get("/x", tt.headers...); res.StatusCode != tt.status || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %s %s; want %d and %q", tt.name, res.Status, text, tt.status, tt.says)
		}
	}
	sandbox, err := s.driver.Get(t.Context(), s.asleep)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := sandbox.Info(t.Context()); err != nil || info.State == driver.Stopped {
		t.Errorf("the one that sleeps was not woken: %v, %v", info.State, err)
	}
}
