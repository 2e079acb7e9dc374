//go:build linux

package client_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/poorkernel"
	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
)

// noCgroups is a machine on which no process gets a cgroup.
var noCgroups = poorkernel.Rule{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}

// All that processes promise holds without cgroups too.
func TestConformanceWithoutCgroups(t *testing.T) {
	t.Parallel()
	manager, _ := poor(t, poorkernel.World{Rules: []poorkernel.Rule{noCgroups}})
	processtest.Run(t, func(*testing.T) process.Manager { return manager }, processtest.Without(processtest.Orphans))
}

// The keeper is killed while its child stands at a system call, between the
// fork and the program. Whatever the next keeper finds, the program runs once.
func TestAProgramRunsOnceThoughTheKeeperDiesAroundItsFork(t *testing.T) {
	for _, c := range []struct {
		name string
		call uintptr
		by   func(call *poorkernel.Call, keeper int) bool
	}{
		{"before the child has a session", unix.SYS_SETSID, child},
		{"before the child executes what waits at the gate", unix.SYS_EXECVE, child},
		{"before the child looks at the gate", unix.SYS_READ, func(call *poorkernel.Call, keeper int) bool { return child(call, keeper) && call.Args[0] == 3 }},
		{"before the child is let through", unix.SYS_WRITE, func(call *poorkernel.Call, keeper int) bool { return leader(call.PID) == keeper && call.Args[2] == 1 }},
		{"before the child executes the program", unix.SYS_EXECVE, func(call *poorkernel.Call, keeper int) bool { return child(call, keeper) && call.Path(0) == "/bin/sh" }},
	} {
		t.Run("without cgroups, "+c.name, func(t *testing.T) {
			runsOnce(t, process.Limits{}, c.by, noCgroups, poorkernel.Rule{Call: c.call, Arg: -1})
		})
		t.Run("with limits, "+c.name, func(t *testing.T) {
			runsOnce(t, process.Limits{Nice: 3}, c.by, poorkernel.Rule{Call: c.call, Arg: -1})
		})
	}
}

func runsOnce(t *testing.T, limits process.Limits, by func(*poorkernel.Call, int) bool, rules ...poorkernel.Rule) {
	stateDir, l := watchedIn(t, rules...)
	armed, struck := killAt(l, by)
	m := testkeeper.Open(t, stateDir)
	scene.Wait(t, scene.Start(t, m, process.Spec{Argv: []string{"true"}}), process.Until{TreeGone: true})
	armed <- pids(t, stateDir).Keeper
	ran := filepath.Join(stateDir, "ran")
	p := scene.Start(t, m, process.Spec{Shell: "nice >> " + ran + "; echo said; exit 5", Limits: limits})
	scene.WantExit(t, p, 5)
	select {
	case <-struck:
	default:
		t.Fatal("the keeper was not killed")
	}
	scene.WantOutput(t, p, process.Stdout, "said\n")
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
func TestAFailureAtTheGateIsToldThoughTheKeeperDiesAfterIt(t *testing.T) {
	stateDir, l := watched(t, unix.SYS_UNLINKAT)
	armed, struck := killAt(l, func(call *poorkernel.Call, keeper int) bool {
		return leader(call.PID) == keeper && filepath.Base(call.Path(1)) == "journal" // it removes the spool
	})
	m := testkeeper.Open(t, stateDir)
	scene.Start(t, m, process.Spec{Argv: []string{"true"}})
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
}

// What waits at the gate needs more than the program may have.
func TestLimitsThatTheGateItselfExceeds(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	unlimited := scene.Output(t, scene.Start(t, m, process.Spec{Shell: "ulimit -Sn"}), process.Stdout)
	for name, c := range map[string]struct {
		script string
		limits process.Limits
		want   string
	}{
		"no descriptor more": {"ulimit -n", process.Limits{Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 4, Hard: 4}}}, "4\n"},
		"little memory":      {"ulimit -v; ulimit -d", process.Limits{Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_AS, Soft: 16 << 20, Hard: 16 << 20}, {Resource: unix.RLIMIT_DATA, Soft: 4 << 20, Hard: 4 << 20}}}, "16384\n4096\n"},
		"no process more":    {"ulimit -p", process.Limits{Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_NPROC, Soft: 0, Hard: 0}}}, "0\n"},
		"no file":            {"ulimit -f", process.Limits{Rlimits: []process.Rlimit{{Resource: unix.RLIMIT_FSIZE, Soft: 0, Hard: 0}}}, "0\n"},
		"the limit of descriptors that Go raises for itself": {"ulimit -Sn; nice", process.Limits{Nice: 7}, unlimited + "7\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				p := scene.Start(t, m, process.Spec{Shell: c.script, Limits: c.limits})
				scene.WantOutput(t, p, process.Stdout, c.want)
			}
		})
	}
	t.Run("one task", func(t *testing.T) {
		both := process.Limits{Nice: 1, PidsMax: 1}
		for range 20 {
			p, err := m.Start(t.Context(), process.Spec{Shell: "echo $(nice)", Limits: both})
			if errors.Is(err, process.ErrUnsupported) {
				return // the machine has no v2 controller for it
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := scene.Output(t, p, process.Stderr); !strings.Contains(got, "fork") {
				t.Fatalf("a second task: %q", got)
			}
		}
	})
}

// child: the call is made by a child that the keeper has forked.
func child(call *poorkernel.Call, keeper int) bool { return parent(call.PID) == keeper }

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
func killAt(l *poorkernel.Listener, is func(call *poorkernel.Call, keeper int) bool) (armed chan<- int, struck <-chan struct{}) {
	pid, dead := make(chan int, 1), make(chan struct{})
	keeper := 0
	go l.Each(func(call *poorkernel.Call) (held bool) {
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
