//go:build linux

package client_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// zygoteOf is the process in a container's first group that is not pid 1; 0: there is none.
func zygoteOf(t *testing.T, i container.Info) int {
	t.Helper()
	for f := range strings.FieldsSeq(string(proctest.Value(os.ReadFile(i.Group + "/init/cgroup.procs"))(t))) {
		if pid := proctest.Value(strconv.Atoi(f))(t); pid != i.PID {
			return pid
		}
	}
	return 0
}

// warm has a container's zygote made, and returns it.
func warm(t *testing.T, in process.Manager, i container.Info) int {
	t.Helper()
	for range 2 {
		if _, exit := said(t, in, i.ID, process.Spec{Argv: []string{"/bin/true"}}); exit == nil || exit.Code != 0 {
			t.Fatalf("%+v", exit)
		}
	}
	pid := zygoteOf(t, i)
	if pid == 0 {
		t.Fatal("there is no zygote")
	}
	return pid
}

func keeperOf(t *testing.T, state string) int {
	t.Helper()
	a := proctest.Value(anchor.Dial(state))(t)
	defer a.Close()
	return proctest.Value(a.Roles())(t).Keeper
}

// A container's zygote is no program of the container's: nobody counts it, nobody waits for it, and
// whoever kills it harms no start.
func TestTheZygoteOfAContainer(t *testing.T) {
	m, state := containerManager(t)
	dirs := newContainerDirs(t)
	s := dirs.spec(t)
	s.Harden, s.Limits = hardened, container.Limits{Memory: 64 << 20, Tasks: 50}
	in, info := inContainer(t, m, s)
	e := m.Containers()
	long := proctest.Start(t, in, labelled(s.ID, process.Spec{Argv: []string{"/bin/sleep", "600"}}))
	if pid := zygoteOf(t, info); pid != 0 {
		t.Errorf("a container in which one program was started has the zygote %d", pid)
	}
	tasks := proctest.Value(e.Usage(t.Context(), s.ID))(t).Tasks
	was := warm(t, in, info)
	// The kernel counts a program that has ended until the keeper has collected it.
	proctest.Eventually(t, "a zygote is not counted", func() bool { return proctest.Value(e.Usage(t.Context(), s.ID))(t).Tasks == tasks })
	// Of a thousand starts neither the keeper nor the zygote has anything left.
	open := func(pid int) int {
		return len(proctest.Value(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t))
	}
	keeper := keeperOf(t, state)
	starts := func(n int) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range n / 4 {
					p, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Argv: []string{"/bin/true"}}))
					if err != nil {
						t.Errorf("start: %v", err)
						return
					}
					if exit := proctest.Wait(t, p, process.Until{}).Exit; exit.Code != 0 {
						t.Errorf("%+v", exit)
					}
					removed(t, p)
				}
			})
		}
		wg.Wait()
	}
	starts(200) // what the keeper keeps at hand is there
	proctest.Eventually(t, "nothing more is open", func() bool {
		here, there := open(keeper), open(was)
		starts(1000)
		return open(keeper) <= here && open(was) == there && there == 3
	})
	if now := zygoteOf(t, info); now != was {
		t.Errorf("the zygote is %d, and was %d", now, was)
	}
	// It is killed: the start is done, and the one after that has another.
	proctest.Must(t, unix.Kill(was, unix.SIGKILL))
	if now := warm(t, in, info); now == was {
		t.Errorf("zygote %d was killed and is there", was)
	}
	// New limits hold for what starts next.
	proctest.Must(t, e.Limit(t.Context(), s.ID, container.Limits{Memory: 32 << 20, Tasks: 20, CPUs: 1}))
	warm(t, in, info)
	if _, exit := said(t, in, s.ID, process.Spec{Argv: []string{"tail", "/dev/zero"}}); exit == nil || exit.Cause != process.CauseOOM {
		t.Errorf("a bomb of memory: %+v", exit)
	}
	if out, _ := said(t, in, s.ID, process.Spec{Shell: "grep -q :cpu:/.*b0 /proc/self/cgroup || grep -q ^0::/p /proc/self/cgroup && echo in"}); out != "in" {
		t.Errorf("it is in no group of the container: %q", out)
	}
	// A container that stands still stands still with it, and ends.
	zygote := warm(t, in, info)
	proctest.Must(t, e.Freeze(t.Context(), s.ID, true))
	proctest.Must(t, e.End(t.Context(), s.ID))
	if exit := proctest.Wait(t, long, process.Until{}).Exit; exit.Cause != process.CauseKilled {
		t.Errorf("%+v", exit)
	}
	if _, ok := procfs.ReadStat(zygote); ok {
		t.Errorf("zygote %d is there, though the container has ended", zygote)
	}
	nothingLeft(t, e, state)
}

// Memory ends while programs start: each start is done or refused, and the container continues.
func TestAZygoteOutOfMemory(t *testing.T) {
	m, state := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Harden, s.Limits = hardened, container.Limits{Memory: 24 << 20, Tasks: 200}
	in, info := inContainer(t, m, s)
	warm(t, in, info)
	keeper := keeperOf(t, state)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				spec := process.Spec{Argv: []string{"/bin/true"}}
				if (i+w)%3 == 0 {
					spec.Argv = []string{"tail", "/dev/zero"}
				}
				p, err := in.Start(t.Context(), labelled(s.ID, spec))
				if err == nil {
					proctest.Wait(t, p, process.Until{})
				}
			}
		})
	}
	wg.Wait()
	if now := keeperOf(t, state); now != keeper {
		t.Errorf("keeper %d was killed with them", keeper)
	}
	if out, exit := said(t, in, s.ID, process.Spec{Shell: "echo well"}); out != "well" {
		t.Errorf("%q, %+v", out, exit)
	}
	warm(t, in, info)
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
	nothingLeft(t, m.Containers(), state)
}

// A keeper continues in place, or does not: no zygote of before is left, and none is missed.
func TestZygotesOverUpgrades(t *testing.T) {
	m, state := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Harden = hardened
	in, info := inContainer(t, m, s)
	keeper := keeperOf(t, state)
	for i := range 4 {
		was := warm(t, in, info)
		path := keeperBinary
		if i%2 == 1 {
			path = "/dev/null"
		}
		if err := m.UpgradeKeeper(t.Context(), path); (err == nil) != (i%2 == 0) {
			t.Fatal(err)
		}
		if _, ok := procfs.ReadStat(was); ok {
			t.Errorf("zygote %d is there after the upgrade to %s", was, path)
		}
		if now := warm(t, in, info); now == was {
			t.Errorf("zygote %d was made again", was)
		}
	}
	if now := keeperOf(t, state); now != keeper {
		t.Errorf("keeper %d did not go on in place: it is %d", keeper, now)
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
	nothingLeft(t, m.Containers(), state)
}

// Keepers are killed while zygotes make programs: each runs once, and its end is known.
func TestKeepersAreKilledWhileZygotesServe(t *testing.T) {
	m, state := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Harden, s.Limits = hardened, container.Limits{Tasks: 200}
	in, info := inContainer(t, m, s)
	warm(t, in, info)
	over := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ran []string
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				name := fmt.Sprintf("run-%d-%d", w, i)
				p, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Shell: "echo x >> /tmp/" + name + "; exit 7"}))
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				if exit := proctest.Wait(t, p, process.Until{}).Exit; exit == nil || exit.Code != 7 {
					t.Errorf("%s: %+v", name, exit)
				}
				mu.Lock()
				ran = append(ran, name)
				mu.Unlock()
			}
		})
	}
	started := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ran)
	}
	for kills := 0; kills < 10 || started() < 50; kills++ {
		time.Sleep(150 * time.Millisecond) // starts are under way, by a zygote
		killKeeper(t, state)
		// It ends by itself, or by the next keeper, which is there before it has taken over.
		proctest.Eventually(t, "no zygote of a keeper that was killed is left", func() bool {
			pid := zygoteOf(t, info)
			stat, ok := procfs.ReadStat(pid)
			return pid == 0 || !ok || stat.PPID == keeperOf(t, state)
		})
	}
	close(over)
	wg.Wait()
	for _, name := range ran {
		if b, err := os.ReadFile(filepath.Join(s.Dir, "up/tmp", name)); err != nil || string(b) != "x\n" {
			t.Errorf("%s ran as often as %q says, %v", name, b, err)
		}
	}
	warm(t, in, info)
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
	nothingLeft(t, m.Containers(), state)
}
