//go:build linux

package client_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestSessionsOfAContainerWeighAsOneWithoutCgroups: no controller does it on this machine, and a program
// makes a hundred sessions.
func TestSessionsOfAContainerWeighAsOneWithoutCgroups(t *testing.T) {
	proctest.Root(t)
	m, _ := poor(t, kernelfault.World{Mounts: []kernelfault.Mount{{Kind: kernelfault.Gone, Path: cgroups}}})
	dirs := newContainerDirs(t)
	start := func(shell string) process.Process {
		s := dirs.spec(t)
		s.Net, s.Harden = container.NetOwn, hardened
		in, _ := inContainer(t, m, s)
		return proctest.Start(t, in, labelled(s.ID, process.Spec{Shell: shell}))
	}
	start("exec sleep 1000.25")
	many := start(`i=0; while [ $i -lt 100 ]; do setsid sleep 1000.5 & i=$((i+1)); done; echo made; wait`)
	proctest.Wait(t, many, process.Until{Match: "made"})
	running := func(line string) (pids []int) {
		for _, pid := range proctest.Value(procfs.PIDs())(t) {
			if b, _ := procfs.Read(pid, "cmdline"); string(b) == line {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	nice := func(pid int) (nice int) {
		var group int
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid))
		if err == nil {
			_, err = fmt.Sscanf(string(text), "/autogroup-%d nice %d", &group, &nice)
		}
		if err != nil {
			t.Fatal(err)
		}
		return nice
	}
	proctest.Eventually(t, "the hundred sessions are as nice as can be", func() bool {
		all := running("sleep\x001000.5\x00")
		return len(all) == 100 && !slices.ContainsFunc(all, func(pid int) bool { return nice(pid) != 19 })
	})
	proctest.Eventually(t, "the only one of another container is as it was", func() bool {
		all := running("sleep\x001000.25\x00")
		return len(all) == 1 && nice(all[0]) == 0
	})
}
