//go:build linux

package client_test

import (
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// TestContainersOfAnOrdinaryUser: what is promised of containers while keepers die, also without
// rights and without cgroups.
func TestContainersOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	testkeeper.Rootless(t, "^(TestAContainerIsMadeOrGoneAtEachPoint|TestAnOOMScoreBesideAContainer|TestContainersOverManyKeepers)$", testbin.Points)
}

// TestAnOOMScoreBesideAContainer: once something was started in a container, nothing of the keeper's
// memory is open to its own user, and a child has that memory until it is a program.
func TestAnOOMScoreBesideAContainer(t *testing.T) {
	m, _ := containerManager(t)
	s := newContainerDirs(t).spec(t)
	in, _ := inContainer(t, m, s)
	spec := process.Spec{Shell: "read x; cat /proc/self/oom_score_adj", Stdin: process.StdinPipe, Limits: process.Limits{OOMScoreAdj: 321}}
	for range 2 {
		for _, p := range []process.Process{proctest.Start(t, m, spec), proctest.Start(t, in, labelled(s.ID, spec))} {
			proctest.WriteLast(t, p, "go\n")
			proctest.WantOutput(t, p, process.Stdout, "321\n")
		}
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
}
