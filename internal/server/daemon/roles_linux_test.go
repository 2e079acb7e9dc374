package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRestartsOfRolesAreCounted(t *testing.T) {
	c := roleCount{}
	for _, step := range []struct {
		name                   string
		anchor, keeper, server int
		want                   roleCount
	}{
		{"the first look", 1, 2, 3, roleCount{Anchor: 1, Keeper: 2, Server: 3}},
		{"nothing changed", 1, 2, 3, roleCount{Anchor: 1, Keeper: 2, Server: 3}},
		{"the server came back", 1, 2, 4, roleCount{Anchor: 1, Keeper: 2, Server: 4, ServerRestarts: 1}},
		{"the keeper is away", 1, 0, 4, roleCount{Anchor: 1, Keeper: 2, Server: 4, ServerRestarts: 1}},
		{"the keeper came back", 1, 5, 4, roleCount{Anchor: 1, Keeper: 5, Server: 4, KeeperRestarts: 1, ServerRestarts: 1}},
		{"the anchor is away", 0, 5, 4, roleCount{Anchor: 1, Keeper: 5, Server: 4, KeeperRestarts: 1, ServerRestarts: 1}},
		{"another daemon", 6, 7, 8, roleCount{Anchor: 6, Keeper: 7, Server: 8}},
	} {
		if c = c.next(step.anchor, step.keeper, step.server); c != step.want {
			t.Errorf("%s: %+v; want %+v", step.name, c, step.want)
		}
	}
}

func TestFactsOfTheKeeperBecomePromises(t *testing.T) {
	got := promises([]string{"kill=cgroup.kill in /x", "splice!EINVAL: a=b", "nothing"})
	want := []promise{{name: "kill", kept: true, detail: "cgroup.kill in /x"}, {name: "splice", detail: "EINVAL: a=b"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(promise{})); diff != "" {
		t.Error(diff)
	}
}
