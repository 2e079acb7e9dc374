//go:build linux

package client_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// cgroup2 is where this machine has its cgroup v2 tree; "": nowhere.
func cgroup2(t *testing.T) string {
	t.Helper()
	b := proctest.Value(os.ReadFile("/proc/self/mounts"))(t)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	return ""
}

// runaway starts a shell that starts another by a command that makes it escape, and
// returns the process and the pid of the one that escaped.
func runaway(t *testing.T, m process.Manager, escape, then string) (process.Process, int) {
	t.Helper()
	return runawayAs(t, m, escape, then, "sleep 1000")
}

// runawayAs has the one that escaped become a program.
func runawayAs(t *testing.T, m process.Manager, escape, then, program string) (process.Process, int) {
	t.Helper()
	up := filepath.Join(t.TempDir(), "up")
	script := strings.ReplaceAll(escape, "SLEEP", "sh -c 'echo $$ > "+up+".new; mv "+up+".new "+up+"; exec "+program+"' </dev/null >/dev/null 2>&1")
	p := proctest.Start(t, m, process.Spec{Shell: script + "\nuntil [ -e " + up + " ]; do sleep 0.01; done; " + then})
	pid := 0
	proctest.Eventually(t, "it has escaped", func() bool {
		b, err := os.ReadFile(up)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	return p, pid
}

// killsRunaway: a kill ends the one that has escaped, of a process that runs and of
// one that has ended; right is what it may say.
func killsRunaway(t *testing.T, m process.Manager, escape string, right func(process.KillResult) bool) {
	t.Helper()
	for _, leader := range []string{"sleep 1000", "exit 0"} {
		p, pid := runaway(t, m, escape, leader)
		if leader == "exit 0" {
			proctest.Wait(t, p, process.Until{})
			if in := proctest.Info(t, p); in.TreeGone {
				t.Errorf("after the exit: %+v; want that its tree is not gone", in)
			}
		}
		if res, err := p.Kill(t.Context()); err != nil || !right(res) {
			t.Errorf("%s: %+v, %v", leader, res, err)
		}
		if alive(pid) {
			t.Errorf("%s: %d lives on", leader, pid)
		}
		finished(t, p)
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// A kill reaches whoever has left the cgroup, the session, the parents and the
// environment behind; and it says that all are gone only if they are.
func TestAKillReachesThoseWhoHaveLeftTheirCgroup(t *testing.T) {
	proctest.Root(t) // nobody else may leave a cgroup
	tree := cgroup2(t)
	if tree == "" {
		t.Fatal("this test needs a cgroup v2 tree, and none is mounted")
	}
	leave := "echo 0 > " + tree + "/cgroup.procs"
	m := testkeeper.Open(t, testkeeper.Start(t))
	for name, escape := range map[string]string{
		"a child":                            "(" + leave + "; exec SLEEP) &",
		"a child with a session of its own":  "setsid sh -c '" + leave + "; exec \"$@\"' sh SLEEP &",
		"an orphan":                          "(" + leave + "; SLEEP &)",
		"an orphan with a session":           "(" + leave + "; setsid SLEEP &)",
		"an orphan without an environment":   "(" + leave + "; setsid env -i PATH=$PATH SLEEP &)",
		"an orphan below an orphan":          "(" + leave + "; setsid sh -c '\"$@\" & wait' sh SLEEP &)",
		"the process itself, with its child": leave + "; SLEEP &",
	} {
		t.Run(name, func(t *testing.T) {
			killsRunaway(t, m, escape, func(k process.KillResult) bool { return k.Verified && len(k.Survivors)+len(k.Strays) == 0 })
		})
	}
	t.Run("what nothing tells of is not killed, and named", func(t *testing.T) {
		p, pid := runaway(t, m, "("+leave+"; prlimit --pid $$ --rttime=unlimited; prlimit --pid $(sh -c 'echo $PPID') --rttime=unlimited; setsid SLEEP &)", "sleep 1000")
		proctest.Eventually(t, "the clock of starts has ticked", func() bool { return procfs.StartedBefore(procfs.Started(pid), procfs.BootTime()) })
		other := proctest.Start(t, m, process.Spec{Shell: "sleep 1000"}) // began later, and is not its parent
		res, err := p.Kill(t.Context())
		if err != nil || res.Verified || !slices.Contains(res.Strays, pid) || res.Names[pid] == "" {
			t.Errorf("%+v, %v; want that %d may be left", res, err, pid)
		}
		if in, err := p.Info(t.Context()); err != nil || in.TreeGone {
			t.Errorf("%+v, %v; want that its tree may not be gone", in, err)
		}
		if !alive(pid) {
			t.Error("what may be another's was killed")
		}
		if res, err := other.Kill(t.Context()); err != nil || !res.Verified {
			t.Errorf("another process: %+v, %v", res, err)
		}
		unix.Kill(pid, unix.SIGKILL)
		finished(t, p)
	})
	t.Run("others are left alone", func(t *testing.T) {
		p, pid := runaway(t, m, "("+leave+"; setsid SLEEP &)", "sleep 1000")
		q, other := runaway(t, m, "("+leave+"; setsid SLEEP &)", "sleep 1000")
		if res, err := p.Kill(t.Context()); err != nil || !res.Verified {
			t.Errorf("%+v, %v", res, err)
		}
		if alive(pid) || !alive(other) {
			t.Errorf("alive: %v and %v; want the second alone", alive(pid), alive(other))
		}
		if in, err := q.Info(t.Context()); err != nil || in.Exit != nil || in.TreeGone {
			t.Errorf("%+v, %v", in, err)
		}
		if res, err := q.Kill(t.Context()); err != nil || !res.Verified || alive(other) {
			t.Errorf("%+v, %v", res, err)
		}
	})
	t.Run("those who fork all the time", func(t *testing.T) {
		p, _ := runaway(t, m, leave+"; SLEEP & (while :; do setsid sh -c 'sleep 0.01; sleep 0.02 &' & sleep 0.002; done) &", "sleep 1000")
		if res, err := p.Kill(t.Context()); err != nil || !res.Verified {
			t.Errorf("%+v, %v; want that all are gone", res, err)
		}
		finished(t, p)
	})
	t.Run("by the next keeper", func(t *testing.T) {
		stateDir := testkeeper.Start(t)
		m := testkeeper.Open(t, stateDir)
		p, pid := runaway(t, m, "("+leave+"; setsid env -i PATH=$PATH SLEEP &)", "sleep 1000")
		killKeeper(t, stateDir)
		if res, err := p.Kill(t.Context()); err != nil || !res.Verified || alive(pid) {
			t.Errorf("%+v, %v; want that all are gone", res, err)
		}
	})
}

// Without cgroups the same holds, but for the claim that nobody can be left.
func TestAKillReachesOrphansWithoutCgroups(t *testing.T) {
	m, _ := poor(t, kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}})
	for name, escape := range map[string]string{
		"a session of its own":                   "setsid SLEEP &",
		"an orphan":                              "(SLEEP &)",
		"an orphan with a session of its own":    "(setsid SLEEP &)",
		"an orphan without an environment":       "(setsid env -i PATH=$PATH SLEEP &)",
		"an orphan below an orphan of a session": "(setsid sh -c '\"$@\" & wait' sh SLEEP &)",
	} {
		t.Run(name, func(t *testing.T) {
			// No survivors, and no claim.
			killsRunaway(t, m, escape, func(k process.KillResult) bool { return !k.Verified && len(k.Survivors) == 0 })
		})
	}
}

// The server may be started by an anchor that has no mark of roles yet, and be new: not at its
// lock. It is no descendant of a process that runs at that time.
func TestAServerWithoutMarkAndLockIsNobodys(t *testing.T) {
	proctest.Root(t)
	state := testkeeper.Start(t)
	m := testkeeper.Open(t, state)
	p := proctest.Start(t, m, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
	before := pids(t, state)
	for _, pid := range []int{before.Anchor, parentOf(t, before.Anchor)} {
		proctest.Must(t, unix.Prlimit(pid, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil))
	}
	unix.Kill(before.Server, unix.SIGKILL)
	proctest.Eventually(t, "there is another server", func() bool { s := pids(t, state).Server; return s > 0 && s != before.Server })
	unix.Kill(before.Anchor, unix.SIGKILL) // whose children are the launcher's now, as an orphan of p would be
	proctest.Eventually(t, "there is another anchor", func() bool { return pids(t, state).Anchor != before.Anchor })
	proctest.WriteLast(t, p, "")
	if r := proctest.Wait(t, p, process.Until{TreeGone: true}); r.Exit.Code != 0 {
		t.Errorf("%+v", r.Exit)
	}
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat, ok := procfs.ReadStat(pid)
	if !ok {
		t.Fatalf("process %d is gone", pid)
	}
	return stat.PPID
}
