//go:build linux

package client_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/anchor"
	"github.com/tend-run/tend/internal/poorkernel"
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

// The anchor stands still for longer than anybody waits for a status that was
// collected already, and the process ends meanwhile.
func TestAnExitStatusWaitsForAnAnchorThatStandsStill(t *testing.T) {
	t.Parallel()
	stateDir := daemon(t)
	m := open(t, stateDir)
	p := start(t, m, process.Spec{Shell: "read x; exit 6", Stdin: process.StdinPipe})
	killKeeper(t, stateDir)
	if _, err := p.Write(t.Context(), process.Input{Data: []byte("half a line")}); err != nil { // another keeper is there
		t.Fatal(err)
	}
	goOn := stop(t, pids(t, stateDir).Anchor)
	if _, err := p.Write(t.Context(), process.Input{Data: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan *process.Exit, 1)
	go func() {
		r, _ := p.Wait(t.Context(), process.Until{})
		ended <- r.Exit
	}()
	select {
	case e := <-ended:
		t.Fatalf("nobody collected it, and it ended with %+v", e)
	case <-time.After(6 * time.Second):
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
	}
}

func collectedLate(t *testing.T, before string) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_EXECVE)
	armed, struck := make(chan [3]int, 1), make(chan func(), 1)
	go func() {
		launcher, nextAnchor, keeper := 0, 0, 0
		for {
			call, err := l.Next()
			if err != nil {
				return
			}
			select {
			case all := <-armed:
				launcher, nextAnchor, keeper = all[0], all[1], all[2]
			default:
			}
			if keeper == 0 || !child(call, keeper) || call.Path(0) != "/bin/sh" {
				l.Continue(call)
				continue
			}
			// The anchor, lest the next keeper finds the program alive.
			begin, collect := stop(t, nextAnchor), stop(t, launcher)
			unix.Kill(keeper, unix.SIGKILL)
			waitGone(keeper)
			keeper = 0
			l.Continue(call)
			go func() { // what it executes comes by here too
				waitGone(call.PID)
				begin()
				struck <- collect
			}()
		}
	}()
	m := open(t, stateDir)
	first := pids(t, stateDir)
	unix.Kill(first.Anchor, unix.SIGKILL) // what the keeper leaves behind falls to the launcher from here on
	waitGone(first.Anchor)
	eventually(t, "another anchor answers", func() bool {
		a, err := anchor.Dial(stateDir)
		if err == nil {
			a.Close()
		}
		return err == nil
	})
	start(t, m, process.Spec{Argv: []string{"true"}}) // by which the keeper learns that its anchor is gone
	eventually(t, "it holds everything", func() bool {
		for _, f := range m.Facts() {
			if strings.HasPrefix(f, "processes_survive_anchor_and_keeper=") {
				return true
			}
		}
		return false
	})
	now := pids(t, stateDir)
	armed <- [3]int{parent(now.Anchor), now.Anchor, now.Keeper}
	type answer struct {
		p   process.Process
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		p, err := m.Start(t.Context(), process.Spec{Dir: stateDir, Shell: "echo ran >> ran; echo said; " + before + "exit 5"})
		answered <- answer{p, err}
	}()
	collect := <-struck
	select {
	case a := <-answered:
		t.Errorf("nobody collected it, and the start was answered: %v, %v", a.p, a.err)
		answered <- a
	case <-time.After(3 * time.Second):
	}
	collect()
	a := <-answered
	if a.err != nil {
		t.Fatal(a.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := a.p.Wait(ctx, process.Until{EOF: true})
	if err != nil || r.Exit == nil || r.Exit.Code != 5 {
		t.Errorf("it ended with %+v, %v", r.Exit, err)
	}
	if got := whole(t, a.p, process.Stdout); got != "said\n" {
		t.Errorf("stdout is %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(stateDir, "ran")); err != nil || string(b) != "ran\n" {
		t.Errorf("the program left %q, %v", b, err)
	}
}

// The keeper is killed while there is no launcher, and the anchor does not answer
// the next one at once.
func TestAKeeperWaitsForTheOnlyOneWhoHoldsEverything(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_RECVMSG)
	armed, answer := make(chan int, 1), make(chan struct{})
	go func() {
		anchor, held := 0, []*poorkernel.Call(nil)
		calls := make(chan *poorkernel.Call)
		go func() {
			defer close(calls)
			for call, err := l.Next(); err == nil; call, err = l.Next() {
				calls <- call
			}
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
				case anchor > 0 && leader(call.PID) == anchor:
					held = append(held, call)
				default:
					l.Continue(call)
				}
			}
		}
	}()
	m := open(t, stateDir)
	p := start(t, m, process.Spec{Shell: "read x; echo got $x; exit 6", Stdin: process.StdinPipe})
	killKeeper(t, stateDir) // the next one begins when the anchor has read what this one deposited
	if _, err := p.Write(t.Context(), process.Input{Data: []byte("this and ")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(stateDir, "run", "mirror.sock")); err != nil { // nobody is found there
		t.Fatal(err)
	}
	now := pids(t, stateDir)
	armed <- now.Anchor
	unix.Kill(now.Keeper, unix.SIGKILL)
	time.Sleep(4 * time.Second) // the next keeper looks for another holder meanwhile, and finds none
	close(answer)
	if _, err := p.Write(t.Context(), process.Input{Data: []byte("that\n")}); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(t.Context(), process.Until{EOF: true}); err != nil || r.Exit == nil || r.Exit.Code != 6 {
		t.Errorf("it ended with %+v, %v", r.Exit, err)
	}
	if got := whole(t, p, process.Stdout); got != "got this and that\n" {
		t.Errorf("stdout is %q", got)
	}
}

// The launcher is told to end while the anchor that it starts cannot be told yet.
func TestALauncherEndsEverythingThoughItsAnchorHasJustBegun(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_EXECVE)
	armed := make(chan int, 1)
	go func() {
		launcher := 0
		for {
			call, err := l.Next()
			if err != nil {
				return
			}
			select {
			case launcher = <-armed:
			default:
			}
			if launcher > 0 && child(call, launcher) {
				unix.Kill(launcher, unix.SIGTERM)
				launcher = 0
			}
			l.Continue(call)
		}
	}()
	m := open(t, stateDir)
	p := start(t, m, process.Spec{Argv: []string{"sleep", "1000"}})
	in, err := p.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := pids(t, stateDir)
	armed <- parent(now.Anchor)
	unix.Kill(now.Anchor, unix.SIGKILL)
	for name, pid := range map[string]int{"keeper": now.Keeper, "server": now.Server, "process": in.PID} {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone already
		}
		defer unix.Close(fd)
		n, err := 0, error(unix.EINTR)
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		}
		if n < 1 {
			t.Errorf("the %s lives on: %v", name, err)
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
}

// The first anchor is killed before it could write down whom it started.
func TestAFirstAnchorThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_EXECVE)
	struck := make(chan int, 1)
	go func() {
		done := false
		for {
			call, err := l.Next()
			if err != nil {
				return
			}
			anchor := parent(call.PID)
			if args, err := os.ReadFile("/proc/" + strconv.Itoa(anchor) + "/cmdline"); err == nil && !done && strings.Contains(string(args), "\x00anchor\x00") {
				done = true
				unix.Kill(anchor, unix.SIGKILL)
				waitGone(anchor)
				struck <- anchor
			}
			l.Continue(call)
		}
	}()
	was := <-struck
	eventually(t, "another anchor answers, with a keeper", func() bool {
		a, err := anchor.Dial(stateDir)
		if err != nil {
			return false
		}
		defer a.Close()
		now, err := a.Roles()
		return err == nil && now.Anchor != was && now.Keeper > 0
	})
	if r, err := start(t, open(t, stateDir), process.Spec{Shell: "exit 4"}).Wait(t.Context(), process.Until{}); err != nil || r.Exit == nil || r.Exit.Code != 4 {
		t.Errorf("a process ended with %+v, %v", r.Exit, err)
	}
}

// A start hangs in a directory that does not answer, and the daemon is to end.
func TestAStartThatHangsKeepsNobodyAlive(t *testing.T) {
	t.Parallel()
	stateDir, l := watched(t, unix.SYS_CHDIR)
	hangs := make(chan struct{})
	go func() {
		for {
			call, err := l.Next()
			if err != nil {
				return
			}
			if call.Path(0) == "/usr" {
				close(hangs)
				continue // for ever
			}
			l.Continue(call)
		}
	}()
	m := open(t, stateDir)
	go m.Start(t.Context(), process.Spec{Argv: []string{"true"}, Dir: "/usr", Limits: process.Limits{Nice: 3}})
	<-hangs
	p := start(t, m, process.Spec{Argv: []string{"sleep", "1000"}}) // in a slot behind it
	in, err := p.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(in.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	unix.Kill(pids(t, stateDir).Anchor, unix.SIGTERM)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); n < 1 {
		t.Errorf("the process lives on: %v", err)
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
