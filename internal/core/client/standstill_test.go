//go:build linux

package client_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// stop lets a role stand still until the test, or the caller, has it go on.
func stop(t *testing.T, pid int) (goOn func()) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Error(err)
	}
	goOn = func() { unix.Kill(pid, unix.SIGCONT) }
	t.Cleanup(goOn)
	return goOn
}

// standstillArgument makes this program one that asks the keeper about a process:
// PROGRAM ARGUMENT STATE_DIR ID.
const standstillArgument = "asks-while-it-stands-still"

func standstillMain() {
	if len(os.Args) != 4 || os.Args[1] != standstillArgument {
		return
	}
	said := func(what string, err error) {
		if fmt.Println(what, err); err != nil {
			os.Exit(1)
		}
	}
	m, err := client.Open(context.Background(), client.Config{StateDir: os.Args[2], Log: slog.New(slog.DiscardHandler)})
	said("opened", err)
	p, err := m.Get(context.Background(), process.Selector{ID: process.ID(os.Args[3])})
	said("found", err)
	fmt.Scanln() // the keeper stands still
	fmt.Println("asks")
	said("answered", p.Signal(context.Background(), 0, process.ScopeTree))
	os.Exit(0)
}

// A machine that stands still for longer than a call may take: nobody answers, and
// nobody waits.
func TestACallOutlastsAMachineThatStandsStill(t *testing.T) {
	t.Parallel()
	stateDir := testkeeper.Start(t)
	p := proctest.Start(t, testkeeper.Open(t, stateDir), process.Spec{Argv: []string{"sleep", "1000"}})
	caller := exec.Command(proctest.Value(os.Executable())(t), standstillArgument, stateDir, string(p.ID()))
	in, out := proctest.Value(caller.StdinPipe())(t), proctest.Value(caller.StdoutPipe())(t)
	proctest.Must(t, caller.Start())
	t.Cleanup(func() {
		caller.Process.Kill()
		caller.Wait()
	})
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if lines.Scan(); lines.Text() != want {
			t.Fatalf("the caller says %q, %v; want %q", lines.Text(), lines.Err(), want)
		}
	}
	says("opened <nil>")
	says("found <nil>")
	keeper := stop(t, pids(t, stateDir).Keeper)
	proctest.Value(io.WriteString(in, "\n"))(t)
	says("asks")
	time.Sleep(500 * time.Millisecond) // it has asked; if not, the test proves less
	goOn := stop(t, caller.Process.Pid)
	time.Sleep(12 * time.Second)
	goOn()
	time.Sleep(300 * time.Millisecond) // it sees how late it is before there is an answer
	keeper()
	says("answered <nil>")
}

// The anchor stands still for longer than anybody waits for a status that was
// collected already, and the process ends meanwhile.
func TestAnExitStatusWaitsForAnAnchorThatStandsStill(t *testing.T) {
	t.Parallel()
	stateDir := testkeeper.Start(t)
	m := testkeeper.Open(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Shell: "read x; exit 6", Stdin: process.StdinPipe})
	killKeeper(t, stateDir)
	proctest.Write(t, p, "half a line") // another keeper is there
	goOn := stop(t, pids(t, stateDir).Anchor)
	proctest.Write(t, p, "\n")
	ended := make(chan *process.Exit, 1)
	go func() {
		r, _ := p.Wait(t.Context(), process.Until{})
		ended <- r.Exit
	}()
	select {
	case e := <-ended:
		t.Fatalf("nobody collected it, and it ended with %+v", e)
	case <-time.After(6 * time.Second): // a status that was collected already is given up after 4
	}
	goOn()
	if e := <-ended; e == nil || e.Code != 6 || e.Cause != process.CauseExited {
		t.Errorf("it ended with %+v", e)
	}
}

// The keeper is killed around its fork, what it forked ends at once, and who is
// to collect that stands still.
func TestAProgramRunsOnceThoughTheOneWhoCollectsItStandsStill(t *testing.T) {
	for name, before := range map[string]string{
		"it leaves nobody": "",
		"it leaves a descendant with a session of its own": "setsid sh -c 'echo > up; exec sleep 1000' >/dev/null 2>&1 & until [ -e up ]; do sleep 0.01; done; ",
		"a descendant is collected before it":              "(setsid sh -c 'echo > up; exit 7' >/dev/null 2>&1 &); until [ -e up ]; do sleep 0.01; done; ",
	} {
		t.Run(name, func(t *testing.T) { collectedLate(t, before) })
		t.Run("by clone(2) "+name, func(t *testing.T) { collectedLate(t, before, noCgroups) })
	}
}

// collectedLate: the pid is known, so the start is answered, and only the exit waits for the
// one that collects the process.
func collectedLate(t *testing.T, before string, lacks ...kernelfault.Rule) {
	t.Parallel()
	w := kernelfault.World{Rules: append(lacks, kernelfault.Rule{Call: unix.SYS_EXECVE, Arg: -1})}
	stateDir, l := watchedIn(t, w)
	armed, struck := make(chan [3]int, 1), make(chan func(), 1)
	launcher, nextAnchor, keeper := 0, 0, 0
	go l.Each(func(call *kernelfault.Call) (held bool) {
		select {
		case all := <-armed:
			launcher, nextAnchor, keeper = all[0], all[1], all[2]
		default:
		}
		if keeper == 0 || !child(call, keeper) || call.Path(0) != "/bin/sh" {
			return false
		}
		// The anchor, lest the next keeper finds the program alive.
		begin, collect := stop(t, nextAnchor), stop(t, launcher)
		kill(keeper)
		keeper = 0
		go func() { // what it executes comes by here too
			waitGone(call.PID)
			begin()
			struck <- collect
		}()
		return false
	})
	m := testkeeper.Open(t, stateDir)
	first := pids(t, stateDir)
	unix.Kill(first.Anchor, unix.SIGKILL) // what the keeper leaves behind falls to the launcher from here on
	waitGone(first.Anchor)
	proctest.Eventually(t, "another anchor answers", func() bool {
		a, err := anchor.Dial(stateDir)
		if err == nil {
			a.Close()
		}
		return err == nil
	})
	proctest.Start(t, m, process.Spec{Argv: []string{"true"}}) // by which the keeper learns that its anchor is gone
	kept(t, m, "processes_survive_anchor_and_keeper")
	now := pids(t, stateDir)
	armed <- [3]int{parent(now.Anchor), now.Anchor, now.Keeper}
	answered := startLater(t, m, process.Spec{Dir: stateDir, Shell: "echo ran >> ran; echo said; " + before + "exit 5"})
	collect := <-struck
	a := <-answered
	if a.err != nil {
		t.Fatal(a.err)
	}
	if in := proctest.Info(t, a.p); in.Exit != nil {
		t.Fatalf("nobody collected it, and it ended with %+v", in.Exit)
	}
	collect()
	proctest.WantExit(t, a.p, 5)
	proctest.WantOutput(t, a.p, process.Stdout, "said\n")
	if b, err := os.ReadFile(filepath.Join(stateDir, "ran")); err != nil || string(b) != "ran\n" {
		t.Errorf("the program left %q, %v", b, err)
	}
}

// The keeper is killed while there is no launcher, and the anchor does not answer
// the next one at once.
func TestAKeeperWaitsForTheOnlyOneWhoHoldsEverything(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_RECVMSG, unix.SYS_SETSOCKOPT)
	armed, answer, again := make(chan int, 1), make(chan struct{}), make(chan struct{})
	go func() {
		anchor, held, waits := 0, []*kernelfault.Call(nil), 0
		calls := make(chan *kernelfault.Call)
		go func() {
			defer close(calls)
			l.Each(func(call *kernelfault.Call) (held bool) {
				calls <- call
				return true
			})
		}()
		for {
			select {
			case anchor = <-armed:
			case <-answer:
				for _, call := range held {
					l.Continue(call)
				}
				anchor, held, answer = 0, nil, nil
			case call, ok := <-calls:
				switch {
				case !ok:
					return
				case call.Call == unix.SYS_SETSOCKOPT:
					if anchor > 0 && call.Args[2] == unix.SO_RCVTIMEO && isRole(leader(call.PID), "keeper") {
						if waits++; waits == 2 {
							close(again)
						}
					}
					l.Continue(call)
				case anchor > 0 && leader(call.PID) == anchor:
					held = append(held, call)
				default:
					l.Continue(call)
				}
			}
		}
	}()
	m := testkeeper.Open(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Shell: "read x; echo got $x; exit 6", Stdin: process.StdinPipe})
	killKeeper(t, stateDir) // the next one begins when the anchor has read what this one deposited
	proctest.Write(t, p, "this and ")
	proctest.Must(t, os.Remove(filepath.Join(stateDir, "run", "mirror.sock"))) // nobody is found there
	now := pids(t, stateDir)
	armed <- now.Anchor
	unix.Kill(now.Keeper, unix.SIGKILL)
	select {
	case <-again: // the next keeper has looked for another holder, and found none
	case <-time.After(time.Minute):
		t.Error("the next keeper does not wait for the anchor")
	}
	close(answer)
	proctest.Write(t, p, "that\n")
	proctest.WantExit(t, p, 6)
	proctest.WantOutput(t, p, process.Stdout, "got this and that\n")
}

// The launcher is told to end while the anchor that it starts cannot be told yet.
func TestALauncherEndsEverythingThoughItsAnchorHasJustBegun(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_EXECVE)
	armed := make(chan int, 1)
	launcher := 0
	go l.Each(func(call *kernelfault.Call) (held bool) {
		select {
		case launcher = <-armed:
		default:
		}
		if launcher > 0 && child(call, launcher) {
			unix.Kill(launcher, unix.SIGTERM)
			launcher = 0
		}
		return false
	})
	m := testkeeper.Open(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}})
	in := proctest.Info(t, p)
	now := pids(t, stateDir)
	armed <- parent(now.Anchor)
	unix.Kill(now.Anchor, unix.SIGKILL)
	for name, pid := range map[string]int{"keeper": now.Keeper, "server": now.Server, "process": in.PID} {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone already
		}
		defer unix.Close(fd)
		wantEnd(t, name, fd)
	}
}

// The first anchor is killed before it could write down whom it started.
func TestAFirstAnchorThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_EXECVE)
	struck := make(chan int, 1)
	done := false
	go l.Each(func(call *kernelfault.Call) (held bool) {
		if anchor := parent(call.PID); !done && isRole(anchor, "anchor") {
			done = true
			kill(anchor)
			struck <- anchor
		}
		return false
	})
	was := <-struck
	proctest.Eventually(t, "another anchor answers, with a keeper", func() bool {
		a, err := anchor.Dial(stateDir)
		if err != nil {
			return false
		}
		defer a.Close()
		now, err := a.Roles()
		return err == nil && now.Anchor != was && now.Keeper > 0
	})
	if r, err := proctest.Start(t, testkeeper.Open(t, stateDir), process.Spec{Shell: "exit 4"}).Wait(t.Context(), process.Until{}); err != nil || r.Exit == nil || r.Exit.Code != 4 {
		t.Errorf("a process ended with %+v, %v", r.Exit, err)
	}
}

// The first anchor is killed before it could write down whom it started, and that keeper
// comes to its program when the daemon has ended. It is nobody's by then.
func TestAKeeperThatComesAfterTheEndEnds(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_EXECVE)
	late := make(chan *kernelfault.Call, 1)
	done := false
	go l.Each(func(call *kernelfault.Call) (held bool) {
		if held = !done && isRole(parent(call.PID), "anchor"); held {
			done = true
			kill(parent(call.PID))
			late <- call
		}
		return held
	})
	call := <-late
	keeper := proctest.Value(unix.PidfdOpen(call.PID, 0))(t)
	defer unix.Close(keeper)
	m := testkeeper.Open(t, stateDir)
	proctest.WantExit(t, proctest.Start(t, m, process.Spec{Shell: "exit 4"}), 4)
	launcher := parent(pids(t, stateDir).Anchor)
	proctest.Must(t, unix.Kill(launcher, unix.SIGTERM))
	waitGone(launcher)
	l.Continue(call)
	wantEnd(t, "keeper", keeper)
}

// A keeper that a former anchor has started is killed while it ends the processes. How
// it ended is not known to the anchor.
func TestAnAdoptedKeeperThatDiesAtTheEndLeavesNoProcess(t *testing.T) {
	t.Parallel()
	stateDir := testkeeper.Start(t)
	m := testkeeper.Open(t, stateDir)
	first := pids(t, stateDir)
	kill(first.Anchor)
	proctest.Eventually(t, "another anchor has the keeper", func() bool {
		a, err := anchor.Dial(stateDir)
		if err != nil {
			return false
		}
		defer a.Close()
		now, err := a.Roles()
		return err == nil && now.Anchor != first.Anchor && now.Keeper == first.Keeper
	})
	p := proctest.Start(t, m, process.Spec{Dir: stateDir, Shell: "trap 'echo > told' TERM; echo > up; while :; do sleep 0.01; done"})
	exists := func(name string) func() bool {
		return func() bool {
			_, err := os.Stat(filepath.Join(stateDir, name))
			return err == nil
		}
	}
	proctest.Eventually(t, "the process waits", exists("up"))
	fd := proctest.Value(unix.PidfdOpen(proctest.Info(t, p).PID, 0))(t)
	defer unix.Close(fd)
	exit := make(chan *process.Exit, 1)
	go func() {
		r, _ := p.Wait(t.Context(), process.Until{})
		exit <- r.Exit
	}()
	proctest.Must(t, unix.Kill(parent(pids(t, stateDir).Anchor), unix.SIGTERM))
	proctest.Eventually(t, "the process is told to end", exists("told"))
	unix.Kill(first.Keeper, unix.SIGKILL)
	wantEnd(t, "process", fd)
	if e := <-exit; e == nil || e.Cause != process.CauseShutdown {
		t.Errorf("it ended with %+v", e)
	}
}

// The machine stands still while the processes are given time to end.
func TestAShutdownOfAMachineThatStoodStillLeavesProcessesTheirTime(t *testing.T) {
	t.Parallel()
	stateDir := testkeeper.Start(t)
	m := testkeeper.Open(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Dir: stateDir, Shell: "trap 'echo > told; until [ -e go ]; do :; done; echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"})
	proctest.Wait(t, p, process.Until{Match: "up"})
	pid, now := proctest.Info(t, p).PID, pids(t, stateDir)
	exit := make(chan *process.Exit, 1)
	go func() {
		r, _ := p.Wait(t.Context(), process.Until{})
		exit <- r.Exit
	}()
	proctest.Must(t, unix.Kill(parent(now.Anchor), unix.SIGTERM))
	proctest.Eventually(t, "the process is told to end", func() bool {
		_, err := os.Stat(filepath.Join(stateDir, "told"))
		return err == nil
	})
	roleGoesOn, processGoesOn := stop(t, now.Keeper), stop(t, pid)
	proctest.Must(t, os.WriteFile(filepath.Join(stateDir, "go"), nil, 0o600))
	time.Sleep(2500 * time.Millisecond) // longer than it is given
	roleGoesOn()
	processGoesOn()
	if e := <-exit; e == nil || e.Code != 7 || e.Signal != 0 {
		t.Errorf("it ended with %+v; want its own status", e)
	}
}

// wantEnd waits for the end of whoever has this pidfd, and ends it if it lives on.
func wantEnd(t *testing.T, who string, pidfd int) {
	t.Helper()
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 60_000)
	}
	if n < 1 {
		t.Errorf("the %s lives on: %v", who, err)
		unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	}
}

// isRole reports whether a process plays a role.
func isRole(pid int, name string) bool {
	args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.Contains(string(args), "\x00"+name+"\x00")
}

// A start hangs in a directory that does not answer, and the daemon is to end.
func TestAStartThatHangsKeepsNobodyAlive(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_CHDIR)
	hangs := make(chan struct{})
	go l.Each(func(call *kernelfault.Call) (held bool) {
		if held = call.Path(0) == "/usr"; held { // for ever
			close(hangs)
		}
		return held
	})
	m := testkeeper.Open(t, stateDir)
	go m.Start(t.Context(), process.Spec{Argv: []string{"true"}, Dir: "/usr", Limits: process.Limits{Nice: 3}})
	<-hangs
	p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}}) // in a slot behind it
	in := proctest.Info(t, p)
	fd := proctest.Value(unix.PidfdOpen(in.PID, 0))(t)
	defer unix.Close(fd)
	unix.Kill(pids(t, stateDir).Anchor, unix.SIGTERM)
	wantEnd(t, "process", fd)
}
