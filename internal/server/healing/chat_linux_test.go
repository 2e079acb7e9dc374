//go:build linux

package healing

import (
	"testing"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// A chat whose service is declared again in the midst of a turn, after another one, is followed
// by the one who follows it already.
func TestAChatIsFollowedOnce(t *testing.T) {
	m := testkeeper.New(t)
	s := play(t, t.TempDir(), m, "sh", "-c", "exec sleep 1000", "sh")
	declare := func(name string) {
		t.Helper()
		c, _ := project(t, name)
		c.Healer.LLM = &config.LLM{Provider: "anthropic", KeyEnv: "KEY"}
		s.is(name, supervisor.State{Up: true})
		proctest.Must(t, s.Declare(t.Context(), c, "/"+name+"/tend.yaml", map[string]string{"KEY": "k"}))
	}
	now := func() (t0 *talk, followed int) {
		t.Helper()
		proctest.Must(t, s.in(t.Context(), func() { t0, followed = s.talk, len(s.followed) }))
		return t0, followed
	}
	declare("app")
	_, _, err := s.SendChat(t.Context(), "app", "hello", "")
	proctest.Must(t, err)
	first, n := now()
	if first == nil || !first.busy || n != 1 {
		t.Fatalf("it is %+v, and %d are followed", first, n)
	}
	declare("other")
	if got, n := now(); got != nil || n != 1 {
		t.Errorf("of another service it is %+v, and %d are followed", got, n)
	}
	declare("app")
	if got, n := now(); got != first || n != 1 {
		t.Errorf("it is %p, and was %p; %d are followed", got, first, n)
	}
	until(t, "its worker runs", func() bool {
		return len(proctest.Value(m.List(t.Context(), process.Filter{Live: true, Labels: map[string]string{LabelChat: first.order.ID}}))(t)) == 1
	})
}
