//go:build linux

package client_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// nothingLeft checks that no container is known, and that there are neither files nor groups of
// one.
func nothingLeft(t *testing.T, e container.Engine, state string) {
	t.Helper()
	if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("there is %+v, %v", list, err)
	}
	proctest.Eventually(t, "no file and no group of a container is left", func() bool {
		files, _ := os.ReadDir(filepath.Join(state, "cells"))
		return len(files) == 0 && len(groupsOf(t, state)) == 0
	})
}

// groupsOf are the cgroups of containers of a state directory, in all hierarchies.
func groupsOf(t *testing.T, state string) []string {
	t.Helper()
	b := proctest.Value(os.ReadFile(filepath.Join(state, "identity")))(t)
	f := strings.Fields(string(b))
	out, _ := exec.Command("find", "/sys/fs/cgroup", "-maxdepth", "6", "-type", "d", "-path", "*/"+f[len(f)-1]+"/b*", "-prune", "-print").Output()
	return strings.Fields(string(out))
}

// controllersV1 counts the controllers of limits that are hierarchies of cgroup v1 here: all
// of them, or none on a machine that has v2 alone.
func controllersV1(t *testing.T) (n int) {
	t.Helper()
	for line := range strings.Lines(string(proctest.Value(os.ReadFile("/proc/self/cgroup"))(t))) {
		if f := strings.Split(line, ":"); len(f) == 3 && slices.Contains([]string{"memory", "pids", "cpu", "cpu,cpuacct"}, f[1]) {
			n++
		}
	}
	return n
}

// ways are those of making containers that this machine has: what the keeper finds, and for root two that older
// machines and containers have.
func ways() []string {
	if testkeeper.IsRootless() {
		return []string{""}
	}
	return []string{"", "owners=nobody,devices=bound,proc=handed", "ids=65536,attach=path"}
}

// noPoint is a point that no keeper of this user comes to: an ordinary user's containers make their own user namespace.
func noPoint() failpoint.Point {
	if testkeeper.IsRootless() {
		return failpoint.ContainerMapped
	}
	return -1
}

// pointed starts roles that can be killed at points, and that make containers in a way.
func pointed(t *testing.T, way string) (state string, table *failpoint.Table) {
	t.Helper()
	dir := t.TempDir()
	proctest.Must(t, testbin.Make(dir, testbin.Points))
	state, err := os.MkdirTemp("", "tend-")
	proctest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(state) })
	table, err = failpoint.Create(state)
	proctest.Must(t, err)
	cmd := exec.Command(testbin.Points.Keeper(dir), "launcher", "--state-dir", state)
	cmd.Env = append(os.Environ(), container.WayVariable+"="+way)
	testkeeper.Run(t, state, cmd, cmd.Start)
	return state, table
}

// The keeper dies while it makes a container to try it. The next one, which is asked at once,
// ends what there is of that container before it makes another.
func TestAContainerThatIsMadeToTryItIsGoneAtEachPoint(t *testing.T) {
	state, table := pointed(t, "")
	e := testkeeper.Open(t, state).Containers()
	for p := failpoint.ContainerIntended; p <= failpoint.ContainerStaged; p++ {
		if p == failpoint.ContainerUnanswered || p == failpoint.ContainerEnding || p == failpoint.ContainerKilled || p == noPoint() { // of containers that were asked for
			continue
		}
		t.Run(p.String(), func(t *testing.T) {
			for range 3 { // the second one, of a keeper that has made none, meets the end of the first
				table.Arm(p, 1, false)
				can, err := e.Can(t.Context())
				if err != nil || can.Mode == 0 {
					t.Errorf("%+v, %v", can, err)
				}
				proctest.Eventually(t, "the keeper is killed", func() bool {
					pid := pids(t, state).Keeper
					return pid > 0 && unix.Kill(pid, unix.SIGKILL) == nil
				})
			}
			nothingLeft(t, e, state)
			proctest.Eventually(t, "nobody is left who was to hold a namespace for a moment", func() bool { return len(helpers(t, state)) == 0 })
			if times, _ := table.Struck(p); times == 0 {
				t.Error("no keeper died there")
			}
			table.Disarm(p)
		})
	}
}

// helpers are the orphans of keepers that are containers' program, and in no container.
func helpers(t *testing.T, state string) (left []int) {
	t.Helper()
	anchor := pids(t, state).Anchor
	up, _ := procfs.ReadStat(anchor)
	all := proctest.Value(procfs.PIDs())(t)
	for _, pid := range all {
		exe, _ := os.Readlink(procfs.Path(pid, "exe"))
		stat, ok := procfs.ReadStat(pid)
		if ok && !stat.Dead() && strings.HasPrefix(exe, "/memfd:tend-sandbox") && (stat.PPID == anchor || stat.PPID == up.PPID) {
			left = append(left, pid)
		}
	}
	return left
}

// At each point of the making and of the end of a container the keeper dies. The next one finds
// it made or undoes it, and the caller notices nothing.
func TestAContainerIsMadeOrGoneAtEachPoint(t *testing.T) {
	for _, way := range ways() {
		t.Run("way "+way, func(t *testing.T) {
			t.Parallel()
			madeAtEachPoint(t, way)
		})
	}
}

func madeAtEachPoint(t *testing.T, way string) {
	state, table := pointed(t, way)
	e := testkeeper.Open(t, state).Containers()
	dirs := newContainerDirs(t)
	for p := failpoint.ContainerIntended; p <= failpoint.ContainerForgotten; p++ {
		if p == noPoint() {
			continue
		}
		t.Run(p.String(), func(t *testing.T) {
			s := dirs.spec(t)
			s.Net = container.NetOwn
			idle, used := 0, 0 // groups; an ordinary user has none, and no disk
			if !testkeeper.IsRootless() {
				s.Limits = container.Limits{Memory: 64 << 20, Tasks: 100, CPUs: 1}
				s.UIDBase = 0x70000000 + uint32(p)*container.IDs // as a sandbox's, so that its user namespace is made, too
				idle, used = 1, 1+controllersV1(t)               // of v2, and of v1, which wait for the first program
			}
			if !testkeeper.IsRootless() && !strings.Contains(way, "attach=path") { // which mounts no disk
				s.Disk = filepath.Join(s.Dir, "disk.img")
				proctest.Must(t, os.WriteFile(s.Disk, nil, 0o600))
				proctest.Must(t, os.Truncate(s.Disk, 16<<20))
				if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", s.Disk).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			if p < failpoint.ContainerEnding {
				table.Arm(p, 1, false)
			}
			info := makeContainer(t, e, s)
			if n := len(groupsOf(t, state)); n != idle {
				t.Errorf("%d groups of an idle container", n)
			}
			proctest.Value(e.Network(t.Context(), s.ID))(t)
			if got := within(t, info, "echo $$ in $(hostname)"); !strings.HasSuffix(got, " in sandbox") {
				t.Errorf("inside: %q", got)
			}
			if list, err := e.List(t.Context()); err != nil || len(list) != 1 || list[0].PID != info.PID {
				t.Errorf("there is %+v, %v", list, err)
			}
			proctest.Eventually(t, "its groups are made", func() bool { return len(groupsOf(t, state)) == used })
			if p >= failpoint.ContainerEnding {
				table.Arm(p, 1, false)
			}
			proctest.Must(t, e.End(t.Context(), s.ID))
			if times, _ := table.Struck(p); times != 1 {
				t.Errorf("the keeper died %d times there", times)
			}
			if livesOn(info.PID) {
				t.Error("pid 1 lives")
			}
			nothingLeft(t, e, state)
			proctest.Eventually(t, "no loop device is left", func() bool {
				loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
				proctest.Must(t, err)
				return !slices.ContainsFunc(loops, func(path string) bool {
					b, err := os.ReadFile(path)
					return err == nil && strings.HasPrefix(string(b), s.Dir+"/")
				})
			})
		})
	}
}

// Fifty containers come and go while keepers die and are upgraded.
func TestContainersOverManyKeepers(t *testing.T) {
	m, state := containerManager(t)
	e := m.Containers()
	dirs := newContainerDirs(t)
	specs := make([]container.Spec, 50)
	for i := range specs {
		specs[i] = dirs.spec(t)
		specs[i].Net = container.NetOwn
	}
	program, err := os.MkdirTemp("", "tend-bin-")
	proctest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(program) })
	proctest.Must(t, testbin.Make(program, testbin.Roles))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for i := w; ; i = (i + 4) % len(specs) {
				select {
				case <-done:
					return
				default:
				}
				id := specs[i].ID
				info, err := e.Make(t.Context(), specs[i])
				if err != nil {
					t.Errorf("make %s: %v", id, err)
					return
				}
				if random.IntN(2) == 0 {
					if now, err := e.Network(t.Context(), id); err != nil || now.PID != info.PID {
						t.Errorf("network of %s: %+v, %v; it was made as pid %d", id, now, err, info.PID)
					}
				}
				if random.IntN(2) == 0 {
					if err := e.End(t.Context(), id); err != nil {
						t.Errorf("end %s: %v", id, err)
					}
				}
			}
		})
	}
	for i := range 12 {
		if i%3 == 2 {
			if err := m.UpgradeKeeper(t.Context(), testbin.Roles.Keeper(program)); err != nil {
				t.Logf("upgrade: %v", err) // it comes to a stand, or continues as it was
			}
			continue
		}
		killKeeper(t, state)
	}
	close(done)
	wg.Wait()
	list, err := e.List(t.Context())
	proctest.Must(t, err)
	for _, i := range list {
		if got := within(t, i, "hostname"); got != "sandbox" {
			t.Errorf("%s: %q", i.ID, got)
		}
	}
	for _, s := range specs {
		proctest.Must(t, e.End(t.Context(), s.ID))
	}
	nothingLeft(t, e, state)
}
