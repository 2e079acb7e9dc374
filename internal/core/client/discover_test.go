//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// stuck is a daemon that stops in the middle of the first start of a shell,
// before the child executes it, until goOn is called. forked is closed then.
func stuck(t *testing.T) (stateDir string, forked <-chan struct{}, goOn func()) {
	return stuckAt(t, unix.SYS_EXECVE, func(call *kernelfault.Call) bool { return call.Path(0) == "/bin/sh" })
}

// stuckAt is stuck at the first call that is the one.
func stuckAt(t *testing.T, nr uintptr, is func(*kernelfault.Call) bool) (stateDir string, there <-chan struct{}, goOn func()) {
	t.Helper()
	stateDir, l := watched(t, nr)
	came, free := make(chan struct{}), make(chan struct{})
	goOn = sync.OnceFunc(func() { close(free) })
	t.Cleanup(goOn) // before the roles are to end
	first := true
	go l.Each(func(call *kernelfault.Call) (held bool) {
		if !first || !is(call) {
			return false
		}
		first = false
		close(came)
		go func() {
			<-free
			l.Continue(call)
		}()
		return true
	})
	return stateDir, came, goOn
}

// started is the answer to a start.
type started struct {
	p   process.Process
	err error
}

// startLater starts a process while the test does other things.
func startLater(t *testing.T, m process.Manager, spec process.Spec) <-chan started {
	answer := make(chan started, 1)
	go func() {
		p, err := m.Start(t.Context(), spec)
		answer <- started{p, err}
	}()
	return answer
}

// told counts the facts that a watcher is told of one process.
func told(w process.Watcher, id process.ID) map[process.EventKind]int {
	n := map[process.EventKind]int{}
	for {
		ev, ok, err := w.Next()
		if !ok || err != nil {
			return n
		}
		if ev.ID == id {
			n[ev.Kind]++
		}
	}
}

// A client whose connection breaks while a start takes long asks again: there is
// one process, which is told once, and whoever asked can follow it.
func TestAStartThatIsRepeatedWhileItIsSlowIsOneProcess(t *testing.T) {
	stateDir, forked, goOn := stuck(t)
	m := testkeeper.Open(t, stateDir)
	w := proctest.Value(m.Watch(t.Context()))(t)
	defer w.Close()
	spec := process.Spec{ID: "once", Shell: "read x; echo $x", Stdin: process.StdinPipe}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := m.Start(ctx, spec)
		first <- err
	}()
	<-forked
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("the first: %v", err)
	}
	second := startLater(t, m, spec)
	proctest.Eventually(t, "the second waits for the first", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return bytes.Contains(stacks, []byte(".waitFor[")) && bytes.Contains(stacks, []byte(".claim("))
	})
	goOn()
	a := <-second
	if a.err != nil {
		t.Fatal(a.err)
	}
	if p := proctest.Find(t, m, "once"); p != a.p {
		t.Errorf("the answer is not the process that is known")
	}
	proctest.WriteLast(t, a.p, "said\n")
	proctest.WantOutput(t, a.p, process.Stdout, "said\n")
	finished(t, a.p)
	n := map[process.EventKind]int{}
	proctest.Eventually(t, "all is told", func() bool {
		for k, v := range told(w, "once") {
			n[k] += v
		}
		return n[process.EventTreeGone] > 0
	})
	if n[process.EventStarted] != 1 || n[process.EventExited] != 1 || n[process.EventTreeGone] != 1 {
		t.Errorf("told: %v; want each once", n)
	}
}

// Pages of a list are told apart by the start, so it is in that order, whatever
// the order of the answers.
func TestAListIsInTheOrderOfTheStarts(t *testing.T) {
	stateDir, there, goOn := stuckAt(t, unix.SYS_RENAMEAT2, func(call *kernelfault.Call) bool {
		return filepath.Base(filepath.Dir(call.Path(3))) == rundir.SpoolDir
	})
	m := testkeeper.Open(t, stateDir)
	started := make(chan process.ID, 1)
	start := func() process.ID {
		p, err := m.Start(t.Context(), process.Spec{Argv: []string{"true"}})
		if err != nil {
			t.Error(err)
			return ""
		}
		return p.ID()
	}
	for held := false; !held; { // until one gets a directory that was made beforehand
		go func() { started <- start() }()
		select {
		case <-there:
			held = true
		case id := <-started:
			if id == "" {
				return
			}
		}
	}
	later := start()
	goOn()
	earlier := <-started
	infos := proctest.Value(m.List(t.Context(), process.Filter{}))(t)
	if n := len(infos); n < 2 || infos[n-2].ID != earlier || infos[n-1].ID != later {
		t.Errorf("%d processes, and the last two are not in order", n)
	}
}

// The keeper that has answered a start may be gone when the answer is read.
func TestAStartIsDoneThoughItsKeeperHasBeenReplaced(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	m.ReplaceHello()
	proctest.Start(t, m, process.Spec{Argv: []string{"true"}})
}

// Who closes the input of a process that is over does not close that of the one
// which has its place on the board now.
func TestInputIsClosedOfTheProcessAskedFor(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	old := proctest.Start(t, m, process.Spec{Argv: []string{"true"}, Stdin: process.StdinPipe})
	finished(t, old)
	var p process.Process
	proctest.Eventually(t, "another process gets its place", func() bool {
		p = proctest.Start(t, m, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
		return client.SameSlot(old, p)
	})
	if err := client.CloseInput(old); !errors.Is(err, process.ErrExited) {
		t.Errorf("%v; want %v", err, process.ErrExited)
	}
	if in, err := p.Info(t.Context()); err != nil || !in.Stdin.Open {
		t.Errorf("the input of the other: %+v, %v; want it open", in.Stdin, err)
	}
}

// A start that a server asked for and then died is known to the next one, even
// if the keeper is done with it only when that has looked at the board.
func TestTheNextServerFindsAStartThatWasUnderWay(t *testing.T) {
	stateDir, forked, goOn := stuck(t)
	m, end := nextServer(t, stateDir, client.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := m.Start(ctx, process.Spec{ID: "orphan", Shell: "echo here; exec sleep 1000"})
		first <- err
	}()
	<-forked
	cancel()
	<-first
	end()

	m, _ = nextServer(t, stateDir, client.Config{})
	goOn()
	proctest.Eventually(t, "the process is known", func() bool {
		_, err := m.Get(t.Context(), process.Selector{ID: "orphan"})
		return err == nil
	})
	proctest.Kill(t, proctest.Find(t, m, "orphan"))
}

// A process that was removed and started again under its id is not taken for the
// one before, whose place on the board was not given back when the server died.
func TestTheNextServerTellsAProcessFromTheOneBeforeWithItsID(t *testing.T) {
	stateDir := testkeeper.Start(t)
	m, end := nextServer(t, stateDir, client.Config{})
	m.HoldSlots()
	p := proctest.Start(t, m, process.Spec{ID: "same", Shell: "exit 3"})
	finished(t, p)
	proctest.Remove(t, p)
	p = proctest.Start(t, m, process.Spec{ID: "same", Shell: "sleep 1000"})
	want := proctest.Info(t, p)
	end()

	m, _ = nextServer(t, stateDir, client.Config{})
	p = proctest.Find(t, m, "same")
	if in, err := p.Info(t.Context()); err != nil || in.PID != want.PID || in.Exit != nil {
		t.Errorf("pid %d, exit %v, %v; want pid %d, which runs", in.PID, in.Exit, err, want.PID)
	}
	proctest.Kill(t, p)
}

// The same of the next keeper, which is asked once more for a start whose answer
// was lost.
func TestTheNextKeeperTellsAProcessFromTheOneBeforeWithItsID(t *testing.T) {
	var armed atomic.Bool
	stateDir, forked, goOn := stuckAt(t, unix.SYS_EXECVE, func(call *kernelfault.Call) bool { return armed.Load() && call.Path(0) == "/bin/sh" })
	m := testkeeper.Open(t, stateDir)
	m.HoldSlots()
	again := filepath.Join(t.TempDir(), "again")
	spec := process.Spec{ID: "same", Shell: "test -e " + again + " || exit 3; echo run >> " + again + "; echo said; exec sleep 1000"}
	first := proctest.Start(t, m, spec)
	finished(t, first)
	proctest.Remove(t, first)
	proctest.Must(t, os.WriteFile(again, nil, 0o600))
	armed.Store(true)
	keeper := pids(t, stateDir).Keeper
	second := startLater(t, m, spec)
	<-forked
	proctest.Must(t, syscall.Kill(keeper, syscall.SIGKILL))
	goOn()
	a := <-second
	if a.err != nil {
		t.Fatal(a.err)
	}
	proctest.Wait(t, a.p, process.Until{Match: "said"})
	if b, _ := os.ReadFile(again); string(b) != "run\n" {
		t.Errorf("the second did %q; want it run once", b)
	}
	if in, err := a.p.Info(t.Context()); err != nil || in.Exit != nil {
		t.Errorf("it has ended with %v, %v; want it running", in.Exit, err)
	}
	proctest.Kill(t, a.p)
}

// What is appended behind a torn tail would never be read.
func TestAPinHoldsBehindATornTail(t *testing.T) {
	stateDir := testkeeper.Start(t)
	m, end := nextServer(t, stateDir, client.Config{})
	p := proctest.Start(t, m, process.Spec{ID: "torn", Shell: "true"})
	finished(t, p)
	end()
	// As a loss of power leaves it.
	f := proctest.Value(os.OpenFile(filepath.Join(stateDir, rundir.SpoolDir, "torn", spool.JournalName), os.O_WRONLY|os.O_APPEND, 0))(t)
	proctest.Value(f.Write(make([]byte, 7)))(t)
	f.Close()
	killKeeper(t, stateDir)

	m, end = nextServer(t, stateDir, client.Config{})
	proctest.Must(t, proctest.Find(t, m, "torn").Pin(t.Context(), true))
	end()
	m, _ = nextServer(t, stateDir, client.Config{})
	if in, err := proctest.Find(t, m, "torn").Info(t.Context()); err != nil || !in.Pinned {
		t.Errorf("pinned %v, %v", in.Pinned, err)
	}
}

// When all roles but the server die, who watches is told what was lost.
func TestAWatcherIsToldOfProcessesThatAreLost(t *testing.T) {
	stateDir := shortDir(t)
	testkeeper.NoServer(t, stateDir)
	launcher := exec.Command(keeperBinary, "launcher", "--state-dir", stateDir)
	proctest.Must(t, launcher.Start())
	m, _ := nextServer(t, stateDir, client.Config{})
	w := proctest.Value(m.Watch(t.Context()))(t)
	defer w.Close()
	p := proctest.Start(t, m, process.Spec{ID: "lost", Shell: "sleep 1000"})
	all := pids(t, stateDir)
	launcher.Process.Kill()
	launcher.Wait()
	for _, pid := range []int{all.Anchor, all.Keeper, all.Server} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill %d: %v", pid, err)
		}
	}
	daemonOn(t, stateDir)
	if res, err := p.Wait(t.Context(), process.Until{}); err != nil || res.Exit == nil || !res.Exit.Lost() {
		t.Errorf("it ended with %+v, %v; want it lost", res.Exit, err)
	}
	n := map[process.EventKind]int{}
	proctest.Eventually(t, "the loss is told", func() bool {
		for k, v := range told(w, "lost") {
			n[k] += v
		}
		return n[process.EventExited] > 0
	})
	if n[process.EventStarted] != 1 || n[process.EventExited] != 1 {
		t.Errorf("told: %v; want each once", n)
	}
}
