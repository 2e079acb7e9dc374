//go:build linux

package client_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// What the test binary becomes with this first argument.
const (
	strangersArgument = "make-strangers" // N: it makes children of its parent, which end
	lastingArgument   = "make-lasting"   // N: the same, and all wait for a signal
	tracerArgument    = "trace"          // PID: it traces a process, and never waits for it
	tracedArgument    = "be-traced"      // N: threads of it make its parent their tracer, and end
)

// strangerMain runs such a program.
func strangerMain() {
	if len(os.Args) != 3 {
		return
	}
	n, _ := strconv.Atoi(os.Args[2])
	switch os.Args[1] {
	case strangersArgument, lastingArgument:
		for range n {
			pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_PARENT|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			if errno == 0 && pid == 0 {
				for os.Args[1] == lastingArgument {
					unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
				}
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 7, 0, 0)
			}
			if errno != 0 {
				fmt.Println(errno)
				os.Exit(1)
			}
		}
		for os.Args[1] == lastingArgument {
			fmt.Println("made")
			unix.Pause()
		}
		os.Exit(3)
	case tracerArgument:
		runtime.LockOSThread()
		if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(n), 0, 0, 0, 0); errno != 0 {
			fmt.Println(errno)
			os.Exit(1)
		}
		fmt.Println("traces")
		for {
			unix.Pause()
		}
	case tracedArgument:
		ended := func() (ended int) {
			threads, _ := os.ReadDir("/proc/self/task")
			for _, t := range threads {
				if b, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/status"); strings.Contains(string(b), "State:\tZ") {
					ended++
				}
			}
			return ended
		}
		for range n {
			go func() {
				runtime.LockOSThread()
				// A signal, as of Go's scheduler, would stop a traced thread for its tracer.
				var all unix.Sigset_t
				for i := range all.Val {
					all.Val[i] = ^all.Val[i]
				}
				if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0, 0, 0); errno != 0 {
					fmt.Println(errno)
					os.Exit(1)
				}
				unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // this thread
			}()
		}
		for ended() < n {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("traced")
		for {
			unix.Pause()
		}
	}
}

// zombies of a process.
func zombies(pid int) (n int) {
	pids, _ := procfs.PIDs()
	for _, p := range pids {
		if stat, ok := procfs.ReadStat(p); ok && stat.PPID == pid && stat.Dead() {
			n++
		}
	}
	return n
}

// A program can make children of its parent, the keeper, which nobody waits for.
func TestTheKeeperCollectsWhatItHasNotMade(t *testing.T) {
	m, state := containerManager(t)
	keeper := keeperOf(t, state)
	other := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}})
	self := proctest.Value(os.Executable())(t)
	p := proctest.Start(t, m, process.Spec{Argv: []string{self, strangersArgument, "20"}})
	if exit := proctest.Wait(t, p, process.Until{}).Exit; exit == nil || exit.Code != 3 {
		t.Errorf("its maker ended with %+v", exit)
	}
	proctest.Eventually(t, "no zombie is left at the keeper", func() bool { return zombies(keeper) == 0 })
	if now := keeperOf(t, state); now != keeper {
		t.Errorf("the keeper was %d, and is %d", keeper, now)
	}
	finished(t, p)
	proctest.Must(t, other.Signal(t.Context(), int(unix.SIGUSR1), process.ScopeLeader))
	if exit := proctest.Wait(t, other, process.Until{}).Exit; exit == nil || exit.Signal != int(unix.SIGUSR1) {
		t.Errorf("another program ended with %+v", exit)
	}
}

// They hold up neither the end of their sandbox nor its neighbours.
func TestAContainerEndsWithItsStrangers(t *testing.T) {
	m, state := containerManager(t)
	keeper := keeperOf(t, state)
	dirs := newContainerDirs(t)
	spec := dirs.spec(t)
	inside := filepath.Join(spec.Dir, "up", "stranger")
	proctest.Must(t, os.WriteFile(inside, proctest.Value(os.ReadFile(proctest.Value(os.Executable())(t)))(t), 0o755))
	in, i := inContainer(t, m, spec)
	if out, exit := said(t, in, i.ID, process.Spec{Argv: []string{"/stranger", strangersArgument, "20"}}); exit == nil || exit.Code != 3 {
		t.Fatalf("%q, %+v", out, exit)
	}
	proctest.Must(t, m.Containers().End(t.Context(), i.ID))
	proctest.Eventually(t, "no zombie is left at the keeper", func() bool { return zombies(keeper) == 0 })
}

// A thread can make the keeper its tracer, and end. Its process has not ended before the keeper
// collects it; on the machine and inside.
func TestAProgramMakesTheKeeperItsTracer(t *testing.T) {
	m, _ := containerManager(t)
	dirs := newContainerDirs(t)
	spec := dirs.spec(t)
	self := proctest.Value(os.Executable())(t)
	proctest.Must(t, os.WriteFile(filepath.Join(spec.Dir, "up", "traced"), proctest.Value(os.ReadFile(self))(t), 0o755))
	in, i := inContainer(t, m, spec)
	outside := proctest.Start(t, m, process.Spec{Argv: []string{self, tracedArgument, "3"}})
	inside := proctest.Start(t, in, labelled(i.ID, process.Spec{Argv: []string{"/traced", tracedArgument, "3"}}))
	for _, p := range []process.Process{outside, inside} {
		if res := proctest.Wait(t, p, process.Until{Match: "traced"}); !res.Met {
			t.Fatalf("it has ended: %+v, %s", res.Exit, proctest.Output(t, p, process.Stdout))
		}
	}
	if res, err := outside.Kill(t.Context()); err != nil || len(res.Survivors) > 0 {
		t.Errorf("the kill: %+v, %v", res, err)
	}
	proctest.Must(t, m.Containers().End(t.Context(), i.ID))
	for _, p := range []process.Process{outside, inside} {
		if exit := proctest.Wait(t, p, process.Until{}).Exit; exit == nil || exit.Signal != int(unix.SIGKILL) {
			t.Errorf("it has ended with %+v", exit)
		}
	}
}

// A tracer has the exit of what it traces before the keeper, and may keep it for itself. The
// keeper waits for it without work, and has the status when the tracer is gone.
func TestATracerKeepsAnExit(t *testing.T) {
	m, state := containerManager(t)
	keeper := keeperOf(t, state)
	self := proctest.Value(os.Executable())(t)
	p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}})
	pid := proctest.Info(t, p).PID
	tracer := proctest.Start(t, m, process.Spec{Argv: []string{self, tracerArgument, fmt.Sprint(pid)}})
	proctest.Wait(t, tracer, process.Until{Match: "traces"})
	proctest.Must(t, unix.Kill(pid, unix.SIGKILL))
	proctest.Eventually(t, "it has ended", func() bool { return !livesOn(pid) })
	used := func() time.Duration {
		stat, _ := procfs.ReadStat(keeper)
		return time.Duration(stat.User+stat.System) * procfs.Tick
	}
	before, began := used(), time.Now()
	time.Sleep(2 * time.Second)
	if took, passed := used()-before, time.Since(began); took > passed/4 {
		t.Errorf("in %v the keeper has worked for %v", passed, took)
	}
	if in := proctest.Info(t, p); in.Exit != nil {
		t.Errorf("its exit is told before anybody can know it: %+v", in.Exit)
	}
	proctest.Value(tracer.Kill(t.Context()))(t)
	if exit := proctest.Wait(t, p, process.Until{}).Exit; exit == nil || exit.Signal != int(unix.SIGKILL) {
		t.Errorf("it ended with %+v", exit)
	}
	finished(t, p)
}

// A program inside may take the mark of any process for its own. Its descendants are its own all
// the same: whoever is killed with a process of the machine, or of another container, is not inside.
func TestAForgedMarkGivesNobodyDescendants(t *testing.T) {
	m, state := containerManager(t)
	dirs := newContainerDirs(t)
	in, i := inContainer(t, m, dirs.spec(t))
	other, second := inContainer(t, m, dirs.spec(t))
	shown := process.Spec{Shell: "sed -n 's/^Max realtime timeout *//p' /proc/self/limits; exec sleep 1000"}
	for where, victim := range map[string]process.Process{
		"the machine": proctest.Start(t, m, shown),
		"a container": proctest.Value(other.Start(t.Context(), labelled(second.ID, shown)))(t),
	} {
		mark, _, _ := strings.Cut(proctest.Wait(t, victim, process.Until{Match: "[0-9]+ .*us"}).Match, " ")
		p := proctest.Value(in.Start(t.Context(), labelled(i.ID, process.Spec{Shell: "prlimit --pid $$ --rttime=" + mark + ": && (setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!)"})))(t)
		proctest.Wait(t, p, process.Until{EOF: true})
		inner := strings.TrimSpace(proctest.Output(t, p, process.Stdout))
		killKeeper(t, state) // what is below pid 1 has fallen to the anchor
		if res, err := victim.Kill(t.Context()); err != nil || !res.Verified {
			t.Errorf("a process of %s: %+v, %v", where, res, err)
		}
		finished(t, victim)
		if out, exit := said(t, in, i.ID, process.Spec{Shell: "kill -0 " + inner + " && grep -c " + mark + " /proc/" + inner + "/limits"}); exit == nil || exit.Code != 0 || out != "1" {
			t.Errorf("what has the mark of a process of %s: %q, %+v; want that it lives", where, out, exit)
		}
	}
}

// Children of a keeper that a program inside has made fall to the anchor when the keeper dies. However many there are, the end of a
// program elsewhere reads no file of each.
func TestStrangersCostNobodyElsesExit(t *testing.T) {
	proctest.Root(t)
	for name, c := range map[string]struct {
		world kernelfault.World
		each  int // what is read of each process of the machine
	}{
		"with groups":    {},
		"without groups": {kernelfault.World{Mounts: []kernelfault.Mount{{Kind: kernelfault.Gone, Path: cgroups}}}, 1}, // to find children
	} {
		t.Run(name, func(t *testing.T) {
			const strangers = 200
			m, state := poor(t, c.world)
			spec := newContainerDirs(t).spec(t)
			self := proctest.Value(os.ReadFile(proctest.Value(os.Executable())(t)))(t)
			proctest.Must(t, os.WriteFile(filepath.Join(spec.Dir, "up", "stranger"), self, 0o755))
			in, i := inContainer(t, m, spec)
			line := process.Spec{Argv: []string{"/stranger", lastingArgument, fmt.Sprint(strangers)}}
			p := proctest.Start(t, in, labelled(i.ID, line))
			if res := proctest.Wait(t, p, process.Until{Match: "made"}); !res.Met {
				t.Fatalf("their maker: %+v", res.Exit)
			}
			killKeeper(t, state)
			a := proctest.Value(anchor.Dial(state))(t)
			defer a.Close()
			roles := proctest.Value(a.Roles())(t)
			fell := proctest.Value(os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", roles.Anchor)))(t)
			if n := len(strings.Fields(string(fell))); n < strangers {
				t.Fatalf("%d have fallen to the anchor", n)
			}
			finished(t, proctest.Start(t, m, process.Spec{Argv: []string{"true"}})) // the keeper has looked around
			least := math.MaxInt                                                    // on a loaded machine the keeper may look several times
			for range 5 {
				before := reads(t, roles.Keeper)
				finished(t, proctest.Start(t, m, process.Spec{Argv: []string{"true"}}))
				n := reads(t, roles.Keeper) - before - c.each*len(proctest.Value(procfs.PIDs())(t))
				least = min(least, n)
			}
			if least >= strangers {
				t.Errorf("the keeper has read %d times too often for the end of a program, beside %d strangers", least, strangers)
			}
		})
	}
}

// reads counts what a process has read.
func reads(t *testing.T, pid int) (n int) {
	t.Helper()
	text := proctest.Value(os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)))(t)
	_, calls, _ := strings.Cut(string(text), "syscr: ")
	_, err := fmt.Sscan(calls, &n)
	proctest.Must(t, err)
	return n
}

// A zygote that somebody has killed is no zombie until the next start.
func TestADeadZygoteIsCollected(t *testing.T) {
	m, state := containerManager(t)
	keeper := keeperOf(t, state)
	in, i := inContainer(t, m, newContainerDirs(t).spec(t))
	proctest.Must(t, unix.Kill(warm(t, in, i), unix.SIGKILL))
	proctest.WantExit(t, proctest.Start(t, m, process.Spec{Argv: []string{"true"}}), 0) // the sweep looks at the end of a program
	proctest.Eventually(t, "no zombie is left at the keeper", func() bool { return zombies(keeper) == 0 })
	warm(t, in, i)
}
