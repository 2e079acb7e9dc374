package page

import (
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// What a login or the token has opened elsewhere ends with it: see package ports.
func TestAVisitorEndsWithItsLogin(t *testing.T) {
	s := serve(t)
	begin := func(reads bool) (id, visitor string) {
		id, err := s.page.sessions.begin(reads)
		proctest.Must(t, err)
		return id, s.page.Visitor(s.page.sessions.hash(id))
	}
	first, one := begin(false)
	_, two := begin(false)
	_, reader := begin(true)
	byToken := s.page.Visitor("")
	lasting := func(when string, want map[string]bool) {
		t.Helper()
		for visitor, want := range want {
			if got := s.page.VisitorLasts(visitor); got != want {
				t.Errorf("%s: %.8s lasts: %v", when, visitor, got)
			}
		}
	}
	lasting("at first", map[string]bool{one: true, two: true, byToken: true, reader: false, "": false, "x": false})
	proctest.Must(t, s.page.sessions.end(first))
	lasting("after a logout", map[string]bool{one: false, two: true, byToken: true})
	s.open(t)
	lasting("with the next server", map[string]bool{one: false, two: true, byToken: true})
	s.token = "another"
	lasting("with another token", map[string]bool{two: false, byToken: false})
	s.token = token
	s.now = s.now.Add(lifetime)
	lasting("after a week", map[string]bool{two: false, byToken: true})
}
