//go:build linux

package client_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
)

// noCgroups is a machine on which no process gets a cgroup.
var noCgroups = kernelfault.Rule{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}

// All that processes promise holds without cgroups too.
func TestConformanceWithoutCgroups(t *testing.T) {
	t.Parallel()
	manager, _ := poor(t, kernelfault.World{Rules: []kernelfault.Rule{noCgroups}})
	processtest.Run(t, func(*testing.T) process.Manager { return manager }, processtest.Without(processtest.Orphans))
}

// The keeper is killed while its child stands at a system call, between the
// fork and the program. Whatever the next keeper finds, the program runs once.
func TestAProgramRunsOnceThoughTheKeeperDiesAroundItsFork(t *testing.T) {
	limited := process.Limits{Nice: 3, Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_CORE}}}
	session := stand{"before the stub has a session", unix.SYS_SETSID, child}
	program := stand{"before the child executes the program", unix.SYS_EXECVE, func(call *kernelfault.Call, keeper int) bool { return child(call, keeper) && call.Path(0) == "/bin/sh" }}
	for _, c := range []stand{session, program, {"before the program's process is made", unix.SYS_CLONE, child}} {
		t.Run("by clone(2), "+c.name, func(t *testing.T) {
			runsOnce(t, limited, c, kernelfault.World{Rules: []kernelfault.Rule{noCgroups}})
		})
		if c.call != unix.SYS_CLONE {
			t.Run("without close_range, "+c.name, func(t *testing.T) {
				runsOnce(t, limited, c, kernelfault.World{Rules: []kernelfault.Rule{noCloseRange}})
			})
		}
	}
	for _, c := range []stand{
		session, program,
		{"before the program's process is made", unix.SYS_CLONE3, child},
		{"before the child has its descriptors", unix.SYS_CLOSE_RANGE, child},
		{"before the child is limited", unix.SYS_SETPRIORITY, child},
	} {
		if c.call != unix.SYS_SETPRIORITY {
			t.Run("by a script, "+c.name, func(t *testing.T) {
				runsOnce(t, process.Limits{}, c, kernelfault.World{})
			})
		}
		t.Run("by a script with limits, "+c.name, func(t *testing.T) {
			runsOnce(t, limited, c, kernelfault.World{})
		})
		t.Run("by a script without cgroups, "+c.name, func(t *testing.T) {
			proctest.Root(t)
			runsOnce(t, limited, c, withoutGroups)
		})
	}
}

// withoutGroups is a machine without cgroups whose programs are started by scripts.
var withoutGroups = kernelfault.World{Mounts: []kernelfault.Mount{{Kind: kernelfault.Gone, Path: cgroups}}}

// stand is a system call of the child's or the keeper's.
type stand struct {
	name string
	call uintptr
	by   func(call *kernelfault.Call, keeper int) bool
}

func runsOnce(t *testing.T, limits process.Limits, at stand, w kernelfault.World) {
	w.Rules = append(slices.Clone(w.Rules), kernelfault.Rule{Call: at.call, Arg: -1})
	stateDir, l := watchedIn(t, w)
	armed, struck := killAt(l, at.by)
	m := testkeeper.Open(t, stateDir)
	proctest.Wait(t, proctest.Start(t, m, process.Spec{Argv: []string{"true"}}), process.Until{TreeGone: true})
	armed <- pids(t, stateDir).Keeper
	ran := filepath.Join(stateDir, "ran")
	p := proctest.Start(t, m, process.Spec{Shell: "nice >> " + ran + "; echo said; exit 5", Limits: limits})
	proctest.WantExit(t, p, 5)
	select {
	case <-struck:
	default:
		t.Fatal("the keeper was not killed")
	}
	proctest.WantOutput(t, p, process.Stdout, "said\n")
	nice := limits.Nice
	if was, err := unix.Getpriority(unix.PRIO_PROCESS, 0); nice == 0 && err == nil {
		nice = 20 - was // the test's own, as the kernel has it
	}
	if b, err := os.ReadFile(ran); err != nil || string(b) != fmt.Sprintln(nice) {
		t.Errorf("the program left %q, %v", b, err)
	}
}

// A program that cannot be executed is a start that failed, although the keeper
// is killed when it has collected the child and not yet answered.
func TestAFailureIsToldThoughTheKeeperDiesAfterIt(t *testing.T) {
	for name, c := range map[string]struct {
		world kernelfault.World
		at    stand
	}{
		"by clone(2)":                 {kernelfault.World{Rules: []kernelfault.Rule{noCgroups}}, spoolRemoved},
		"by a script":                 {kernelfault.World{}, spoolRemoved},
		"by a script without cgroups": {withoutGroups, spoolRemoved},
		// The child is still to fail when the next keeper finds it.
		"the script goes on alone":                 {kernelfault.World{}, stand{"", unix.SYS_EXECVE, child}},
		"the script goes on alone without cgroups": {withoutGroups, stand{"", unix.SYS_EXECVE, child}},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.world.Mounts) > 0 {
				proctest.Root(t)
			}
			c.world.Rules = append(c.world.Rules, kernelfault.Rule{Call: c.at.call, Arg: -1})
			stateDir, l := watchedIn(t, c.world)
			armed, struck := killAt(l, c.at.by)
			m := testkeeper.Open(t, stateDir)
			proctest.Start(t, m, process.Spec{Argv: []string{"true"}})
			armed <- pids(t, stateDir).Keeper
			p, err := m.Start(t.Context(), process.Spec{Argv: []string{"/no/such/program"}, Limits: process.Limits{Nice: 3}})
			var failed *process.StartError
			if !errors.As(err, &failed) || failed.Reason != process.StartNotFound {
				t.Errorf("it says %v, %v", p, err)
			}
			select {
			case <-struck:
			default:
				t.Fatal("the keeper was not killed")
			}
		})
	}
}

// spoolRemoved: the keeper removes the spool of a process.
var spoolRemoved = stand{"", unix.SYS_UNLINKAT, func(call *kernelfault.Call, keeper int) bool {
	return leader(call.PID) == keeper && filepath.Base(call.Path(1)) == "journal"
}}

// A limit holds from the program's first moment on, also one that is less than what the
// keeper has itself.
func TestLimitsOfAProgram(t *testing.T) {
	for name, rules := range map[string][]kernelfault.Rule{"by clone3": nil, "by clone(2)": {noCgroups}, "without close_range": {noCloseRange}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := poor(t, kernelfault.World{Rules: rules})
			limits(t, m)
		})
	}
}

func limits(t *testing.T, m process.Manager) {
	unlimited := proctest.Output(t, proctest.Start(t, m, process.Spec{Shell: "ulimit -Sn"}), process.Stdout)
	rlimit := func(resource int, soft, hard uint64) process.Limits {
		return process.Limits{Rlimits: []process.Rlimit{{Resource: resource, Soft: soft, Hard: hard}}}
	}
	for name, c := range map[string]struct {
		script string
		limits process.Limits
		want   string
	}{
		"no descriptor more": {"ulimit -n", rlimit(unix.RLIMIT_NOFILE, 4, 4), "4\n"},
		"little memory":      {"ulimit -v; ulimit -d", process.Limits{Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_AS, Soft: 16 << 20, Hard: 16 << 20}, {Resource: unix.RLIMIT_DATA, Soft: 4 << 20, Hard: 4 << 20}}}, "16384\n4096\n"},
		"no process more":    {"ulimit -p", rlimit(unix.RLIMIT_NPROC, 0, 0), "0\n"},
		"no file":            {"ulimit -f", rlimit(unix.RLIMIT_FSIZE, 0, 0), "0\n"},
		"a score":            {"cat /proc/$$/oom_score_adj", process.Limits{OOMScoreAdj: 321}, "321\n"},
		"the limit of descriptors that Go raises for itself": {"ulimit -Sn; nice", process.Limits{Nice: 7}, unlimited + "7\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				p := proctest.Start(t, m, process.Spec{Shell: c.script, Limits: c.limits})
				proctest.WantOutput(t, p, process.Stdout, c.want)
			}
		})
	}
	t.Run("one task", func(t *testing.T) {
		both := process.Limits{Nice: 1, PidsMax: 1}
		for range 20 {
			p, err := m.Start(t.Context(), process.Spec{Shell: "echo $(nice)", Limits: both})
			proctest.Must(t, err)
			if got := proctest.Output(t, p, process.Stderr); !strings.Contains(got, "fork") {
				t.Fatalf("a second task: %q", got)
			}
		}
	})
	// A limit that the kernel refuses is named, and nothing of the program runs.
	refused := map[string]struct {
		limits process.Limits
		want   string
	}{
		"more than any may have": {rlimit(unix.RLIMIT_NOFILE, 1<<40, 1<<40), "limits.rlimits[0] (resource 7, soft 1099511627776, hard 1099511627776)"},
		"the second of two":      {process.Limits{Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_CORE}, {Resource: unix.RLIMIT_NOFILE, Soft: 1 << 40, Hard: 1 << 40}}}, "limits.rlimits[1]"},
	}
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			ran := filepath.Join(t.TempDir(), "ran")
			p, err := m.Start(t.Context(), process.Spec{Shell: "touch " + ran, Limits: c.limits})
			var failed *process.StartError
			if !errors.As(err, &failed) || failed.Reason != process.StartLimits || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v, %v", p, err)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("the program ran")
			}
		})
	}
}

// child: the call is made by a child that the keeper has forked.
func child(call *kernelfault.Call, keeper int) bool { return parent(call.PID) == keeper }

// leader is the process of a thread, and parent its parent; 0: it is gone.
func leader(tid int) int { return statusNumber(tid, "Tgid:") }
func parent(tid int) int { return statusNumber(tid, "PPid:") }

func statusNumber(tid int, name string) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(b), "\n"+name)
	n, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
	return n
}

// killAt kills the keeper whose pid is sent to armed, at the first call that is the
// one, and closes struck then.
func killAt(l *kernelfault.Listener, is func(call *kernelfault.Call, keeper int) bool) (armed chan<- int, struck <-chan struct{}) {
	pid, dead := make(chan int, 1), make(chan struct{})
	keeper := 0
	go l.Each(func(call *kernelfault.Call) (held bool) {
		select {
		case keeper = <-pid:
		default:
		}
		if keeper > 0 && is(call, keeper) {
			kill(keeper)
			keeper = 0
			close(dead)
		}
		return false
	})
	return pid, dead
}

// kill ends a role, and waits until it is gone.
func kill(pid int) {
	unix.Kill(pid, unix.SIGKILL)
	waitGone(pid)
}

// waitGone waits until a process has ended.
func waitGone(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err == nil && n > 0 {
			return
		}
	}
}
