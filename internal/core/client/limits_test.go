//go:build linux

package client_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// ownGroups are the groups of single processes of a state directory in hierarchies of v1.
func ownGroups(t *testing.T, state string) []string {
	t.Helper()
	f := strings.Fields(string(proctest.Value(os.ReadFile(filepath.Join(state, "identity")))(t)))
	name := f[len(f)-1]
	out, _ := exec.Command("find", "/sys/fs/cgroup", "-type", "d", "(", "-name", name+".p*", "-o", "-path", "*/"+name+"/b*/p*.*", ")", "-print").Output()
	return strings.Fields(string(out))
}

// groupsBelow are all groups of a state directory.
func groupsBelow(t *testing.T, state string) []string {
	t.Helper()
	f := strings.Fields(string(proctest.Value(os.ReadFile(filepath.Join(state, "identity")))(t)))
	out, _ := exec.Command("find", cgroups, "-type", "d", "-path", "*/"+f[len(f)-1]+"*").Output()
	return strings.Fields(string(out))
}

func noOwnGroups(t *testing.T, state string) {
	t.Helper()
	proctest.Eventually(t, "no group of a limit is left", func() bool { return len(ownGroups(t, state)) == 0 })
}

// hasV1 reports whether the machine's controller of tasks is one of v1.
func hasV1() bool {
	_, err := os.Stat("/sys/fs/cgroup/pids/tasks")
	return err == nil
}

// limited is a machine on which limits of memory, tasks and cpu hold.
type limited struct {
	name  string
	world kernelfault.World
}

func limitedMachines() []limited {
	out := []limited{{"by clone3", kernelfault.World{}}, {"without close_range", kernelfault.World{Rules: []kernelfault.Rule{noCloseRange}}}}
	if !hasV1() {
		return out
	}
	out = append(out, limited{"without groups of v2", kernelfault.World{Rules: []kernelfault.Rule{noCgroups}}})
	if unified := cgroups + "/unified"; exec.Command("mountpoint", "-q", unified).Run() == nil {
		out = append(out, limited{"v1 alone", kernelfault.World{Mounts: []kernelfault.Mount{{Kind: kernelfault.Gone, Path: unified}}}})
	}
	return out
}

// The tail of a file without lines takes memory without end.
var greedy = []string{"tail", "/dev/zero"}

func TestLimitsOfATreeHold(t *testing.T) {
	proctest.Root(t)
	for _, c := range limitedMachines() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, state := poor(t, c.world)
			limitsHold(t, m, state, func(s process.Spec) process.Spec { return s })
			noOwnGroups(t, state)
		})
	}
	t.Run("in a container with limits of its own", func(t *testing.T) {
		t.Parallel()
		m, state := containerManager(t)
		s := newContainerDirs(t).spec(t)
		s.Limits.Memory, s.Limits.Tasks = 256<<20, 200
		in, _ := inContainer(t, m, s)
		limitsHold(t, in, state, func(spec process.Spec) process.Spec { return labelled(s.ID, spec) })
		if u := proctest.Value(m.Containers().Usage(t.Context(), s.ID))(t); u.OOMKills != 2 {
			t.Errorf("the container has counted %d ends for want of memory; want 2", u.OOMKills)
		}
		noOwnGroups(t, state)
		proctest.Must(t, m.Containers().End(t.Context(), s.ID))
	})
}

func limitsHold(t *testing.T, m process.Manager, state string, spec func(process.Spec) process.Spec) {
	t.Helper()
	start := func(s process.Spec) process.Process { t.Helper(); return proctest.Start(t, m, spec(s)) }
	p := start(process.Spec{Argv: greedy, Limits: process.Limits{MemoryMax: 32 << 20}})
	if e := proctest.Wait(t, p, process.Until{}).Exit; e.Signal != 9 || e.Cause != process.CauseOOM {
		t.Errorf("without memory it ended with %+v", e)
	}
	// The end of a descendant is none of its leader.
	p = start(process.Spec{Shell: "tail /dev/zero; echo $?; sleep 1000", Limits: process.Limits{MemoryMax: 32 << 20}})
	proctest.Wait(t, p, process.Until{Match: "137"})
	proctest.Kill(t, p)
	if e := proctest.Wait(t, p, process.Until{}).Exit; e.Cause != process.CauseKilled {
		t.Errorf("killed by us it ended with %+v", e)
	}
	// Nobody else has its limit, and a slot that was limited is not limited for the next.
	p = start(process.Spec{Shell: "head -c 100000000 /dev/zero | tail | wc -c"})
	proctest.WantOutput(t, p, process.Stdout, "100000000\n")
	if e := proctest.Wait(t, p, process.Until{}).Exit; e.Cause != process.CauseExited {
		t.Errorf("without a limit it ended with %+v", e)
	}
	p = start(process.Spec{Shell: "echo $(echo one)", Limits: process.Limits{PidsMax: 1}})
	if got := proctest.Output(t, p, process.Stderr); !strings.Contains(got, "fork") {
		t.Errorf("a second task: %q", got)
	}
	p = start(process.Spec{Shell: "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo up; wait", Limits: process.Limits{PidsMax: 20}})
	proctest.Wait(t, p, process.Until{Match: "up"})
	if k, err := p.Kill(t.Context()); err != nil || len(k.Survivors) > 0 {
		t.Errorf("the kill says %+v, %v", k, err)
	}
	p = start(process.Spec{Argv: []string{"sleep", "1000"}, Limits: process.Limits{CPUWeight: 500}})
	groups, file, members, want := ownGroups(t, state), "/cpu.shares", "/tasks", "5120\n"
	if !hasV1() { // the pid may be one inside, of which the machine's /proc knows nothing
		groups, file, members, want = groupsBelow(t, state), "/cpu.weight", "/cgroup.procs", "500\n"
	}
	in := ""
	for _, dir := range groups {
		weight, err := os.ReadFile(dir + file)
		if pids, _ := os.ReadFile(dir + members); err == nil && len(pids) > 0 && string(weight) != "100\n" {
			in += string(weight)
		}
	}
	if in != want {
		t.Errorf("%s of its group: %q", file, in)
	}
	proctest.Kill(t, p)
	// One that would use more than all of its time is held up again and again.
	p = start(process.Spec{Shell: "while :; do :; done", Limits: process.Limits{CPUs: 0.1}})
	proctest.Eventually(t, "it is held up", func() bool {
		time, _ := timesOf(t, state)
		return time > 0
	})
	if _, quotas := timesOf(t, state); !slices.Equal(quotas, []string{"10000"}) {
		t.Errorf("its time of each period is %q", quotas)
	}
	proctest.Kill(t, p)
	p = start(process.Spec{Argv: []string{"sleep", "1000"}}) // in the slot of the one before
	if _, quotas := timesOf(t, state); len(quotas) > 0 {
		t.Errorf("the next has %q", quotas)
	}
	proctest.Kill(t, p)
}

// timesOf is how often processes were held up for their limit of CPU time, and the limits in
// groups of processes, in microseconds of each 100 ms.
func timesOf(t *testing.T, state string) (held int, quotas []string) {
	t.Helper()
	groups := ownGroups(t, state)
	if !hasV1() {
		groups = groupsBelow(t, state)
	}
	for _, dir := range groups {
		text, err := os.ReadFile(dir + "/cpu.cfs_quota_us")
		if err != nil {
			if text, err = os.ReadFile(dir + "/cpu.max"); err != nil {
				continue
			}
		}
		// On v2 a group whose processes were killed stays until the next start that needs it.
		if pids, _ := os.ReadFile(dir + "/cgroup.procs"); len(pids) == 0 && !hasV1() {
			continue
		}
		quota := strings.Fields(string(text))[0]
		if quota == "max" || quota == "-1" {
			continue
		}
		quotas = append(quotas, quota)
		stat := string(proctest.Value(os.ReadFile(dir + "/cpu.stat"))(t))
		_, rest, _ := strings.Cut(stat, "nr_throttled ")
		n, _, _ := strings.Cut(rest, "\n")
		held += proctest.Value(strconv.Atoi(n))(t)
	}
	return held, quotas
}

// A sandbox's limit of CPU time holds for processes in it that ask for more, and may become
// less than theirs.
func TestAContainerHasLessTimeThanAProcessInIt(t *testing.T) {
	proctest.Root(t)
	m, state := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Limits.CPUs = 0.5
	in, _ := inContainer(t, m, s)
	for _, cpus := range []float64{2, 0.25} {
		proctest.Start(t, in, labelled(s.ID, process.Spec{Argv: []string{"sleep", "1000"}, Limits: process.Limits{CPUs: cpus}}))
	}
	for _, cpus := range []float64{0.2, 3, 0.05} {
		proctest.Must(t, m.Containers().Limit(t.Context(), s.ID, container.Limits{CPUs: cpus}))
	}
	if _, quotas := timesOf(t, state); hasV1() && !slices.Equal(quotas, []string{"5000", "5000"}) {
		t.Errorf("they have %q", quotas)
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
}

// A keeper that was there before this version would drop the limit in silence: it is asked
// for nothing that it does not know.
func TestAKeeperThatKnowsNoLimitOfProcessorsIsNotAskedForOne(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	m.ForgetFact("cpu_limit")
	_, err := m.Start(t.Context(), process.Spec{Argv: []string{"true"}, Limits: process.Limits{CPUs: 1}})
	if !errors.Is(err, process.ErrUnsupported) || !strings.Contains(err.Error(), "limits.cpus") || !strings.Contains(err.Error(), "tend upgrade") {
		t.Errorf("it is %v", err)
	}
	proctest.Start(t, m, process.Spec{Argv: []string{"true"}})
}

// controlFile reads a file of a process's group, of v1 if the controller is there.
func controlFile(t *testing.T, pid int, controller, file string) string {
	t.Helper()
	text := string(proctest.Value(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)))(t))
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		root := cgroups
		if slices.Contains(strings.Split(f[1], ","), controller) {
			root += "/" + controller
		} else if f[0] != "0" || hasV1() {
			continue
		}
		return strings.TrimSpace(string(proctest.Value(os.ReadFile(root + f[2] + "/" + file))(t)))
	}
	t.Fatalf("no group has %s: %s", controller, text)
	return ""
}

func TestAStartThatFailsLeavesNoGroup(t *testing.T) {
	proctest.Root(t)
	for _, c := range limitedMachines() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, state := poor(t, c.world)
			all := process.Limits{MemoryMax: 64 << 20, PidsMax: 100, CPUWeight: 50, CPUs: 0.5}
			many := all
			many.PidsMax = 1 << 40 // the kernel has no such limit
			for name, spec := range map[string]process.Spec{
				"no such program":           {Argv: []string{"/no/such/program"}, Limits: all},
				"a program in no format":    {Argv: []string{"/proc/version"}, Limits: all},
				"a limit that is refused":   {Argv: []string{"true"}, Limits: many},
				"an rlimit that is refused": {Argv: []string{"true"}, Limits: process.Limits{MemoryMax: 64 << 20, Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 1 << 40, Hard: 1 << 40}}}},
			} {
				p, err := m.Start(t.Context(), spec)
				var failed *process.StartError
				if !errors.As(err, &failed) && !errors.Is(err, process.ErrNotFound) {
					t.Errorf("%s: %v, %v", name, p, err)
				}
				if left := ownGroups(t, state); len(left) > 0 {
					t.Errorf("%s: %v is left", name, left)
				}
			}
		})
	}
}

// At each point of its start and of its end the keeper dies. The limits hold, and
// their groups go with the process.
func TestLimitsOutliveTheKeeperAtEachPoint(t *testing.T) {
	proctest.Root(t)
	m, table, state := pointsManager(t)
	points := []failpoint.Point{failpoint.TreeRecorded, failpoint.Final, failpoint.KillNoted, failpoint.KillSent}
	for p := failpoint.SpawnReserved; p <= failpoint.SpawnUnanswered; p++ {
		points = append(points, p)
	}
	for p := failpoint.ExitSeen; p <= failpoint.ExitAnnounced; p++ {
		points = append(points, p)
	}
	both := process.Limits{MemoryMax: 32 << 20, PidsMax: 1}
	for _, at := range points {
		t.Run(at.String(), func(t *testing.T) {
			table.Arm(at, 1, false)
			defer table.Disarm(at)
			p := proctest.Start(t, m, process.Spec{Shell: "read x; exec tail /dev/zero", Stdin: process.StdinPipe, Limits: both})
			if got := controlFile(t, proctest.Info(t, p).PID, "pids", "pids.max"); got != "1" {
				t.Errorf("its limit of tasks is %s", got)
			}
			if hasV1() && len(ownGroups(t, state)) != 2 {
				t.Errorf("its groups are %v", ownGroups(t, state))
			}
			if at == failpoint.KillNoted || at == failpoint.KillSent {
				proctest.Kill(t, p)
			} else {
				proctest.WriteLast(t, p, "go\n")
				if e := proctest.Wait(t, p, process.Until{}).Exit; e.Signal != 9 || e.Cause != process.CauseOOM {
					t.Errorf("it ended with %+v; %q", e, proctest.Output(t, p, process.Stderr))
				}
			}
			proctest.Eventually(t, "the keeper has died there", func() bool { n, _ := table.Struck(at); return n == 1 })
			noOwnGroups(t, state)
		})
	}
}

func TestLimitsOutliveUpgradesAndDeaths(t *testing.T) {
	proctest.Root(t)
	state := testkeeper.Start(t)
	m := testkeeper.Open(t, state)
	start := func() process.Process {
		return proctest.Start(t, m, process.Spec{Shell: "read x; test $x = fork && echo $(:); exec tail /dev/zero", Stdin: process.StdinPipe, Limits: process.Limits{MemoryMax: 32 << 20, PidsMax: 1}})
	}
	first, forks := start(), start()
	for range 2 {
		proctest.Must(t, m.UpgradeKeeper(t.Context(), keeperBinary))
		unix.Kill(pids(t, state).Keeper, unix.SIGKILL)
		second := start()
		unix.Kill(pids(t, state).Anchor, unix.SIGKILL)
		proctest.WriteLast(t, second, "go\n")
		if e := proctest.Wait(t, second, process.Until{}).Exit; e.Cause != process.CauseOOM {
			t.Errorf("it ended with %+v", e)
		}
	}
	proctest.WriteLast(t, first, "go\n")
	if e := proctest.Wait(t, first, process.Until{}).Exit; e.Cause != process.CauseOOM {
		t.Errorf("it ended with %+v", e)
	}
	proctest.WriteLast(t, forks, "fork\n")
	if got := proctest.Output(t, forks, process.Stderr); !strings.Contains(got, "fork") {
		t.Errorf("a second task: %q", got)
	}
	noOwnGroups(t, state)
}

func TestManyLimitedProcessesLeaveNothing(t *testing.T) {
	proctest.Root(t)
	m, table, state := pointsManager(t)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				limits := process.Limits{MemoryMax: 32 << 20, PidsMax: 10, CPUWeight: int64(1 + i)}
				p, err := m.Start(t.Context(), process.Spec{Shell: fmt.Sprintf("sleep 0.0%d & exit %d", i%10, w), Limits: limits})
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				if r, err := p.Wait(t.Context(), process.Until{TreeGone: true}); err != nil || r.Exit.Code != w {
					t.Errorf("%+v, %v", r.Exit, err)
				}
				if i%10 == w {
					table.Arm(failpoint.SpawnLimited, 1, false)
				}
			}
		})
	}
	wg.Wait()
	noOwnGroups(t, state)
}

// All roles die at once, and with them what they knew. The next daemon on the directory ends
// what is left in the groups of limits, and removes those.
func TestGroupsOfADaemonThatIsGoneAreSwept(t *testing.T) {
	proctest.Root(t)
	for _, c := range limitedMachines() {
		t.Run(c.name, func(t *testing.T) {
			state := shortDir(t)
			launcher := proctest.Value(kernelfault.Command(c.world, keeperBinary, "launcher", "--state-dir", state))(t)
			testkeeper.NoServer(t, state)
			proctest.Must(t, launcher.Start())
			var pid int
			t.Run("before", func(t *testing.T) { // which closes its manager
				p := proctest.Start(t, testkeeper.Open(t, state), process.Spec{Argv: []string{"sleep", "1000"}, Limits: process.Limits{MemoryMax: 32 << 20, PidsMax: 5}})
				pid = proctest.Info(t, p).PID
			})
			roles := pids(t, state)
			all := []int{launcher.Process.Pid, roles.Anchor, roles.Keeper}
			for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} { // none starts another
				for _, r := range all {
					unix.Kill(r, sig)
				}
			}
			launcher.Wait()
			for _, r := range all[1:] {
				proctest.Eventually(t, "the roles are gone", func() bool { return !alive(r) })
			}
			if !alive(pid) {
				t.Fatal("the process died with the roles")
			}
			cmd := proctest.Value(kernelfault.Command(c.world, keeperBinary, "launcher", "--state-dir", state))(t)
			testkeeper.Run(t, state, cmd, cmd.Start)
			livesAndDies(t, testkeeper.Open(t, state), state)
			if hasV1() {
				proctest.Eventually(t, "it is ended", func() bool { return !alive(pid) })
			}
			noOwnGroups(t, state)
		})
	}
}
