//go:build linux

package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// bin is the tend that is attacked.
var bin string

func TestMain(m *testing.M) {
	os.Exit(testbin.Main(func(dir string) int {
		bin = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

// TestRootless attacks the daemon of an ordinary user. What needs a daemon of root is left out there.
func TestRootless(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	testkeeper.Rootless(t, "^TestInside$", testbin.Released)
}

// attempt is one kind of attack.
type attempt struct {
	name string
	// root: the daemon of an ordinary user has nothing of it, as docs/isolation.md says.
	root bool
	do   func(t *testing.T, w *world)
}

// TestInside makes all attempts on one daemon, each from a sandbox of its own.
func TestInside(t *testing.T) {
	t.Parallel()
	w := open(t)
	for _, a := range slices.Concat(counted, kernel(), ends, entering, streams, ofFiles, answers, ofRoots, bySudo) {
		if a.root && testkeeper.IsRootless() {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			a.do(t, w)
			w.goesOn(t)
		})
	}
}

// world is a daemon and a sandbox that nobody attacks from.
type world struct {
	*testdaemon.Daemon
	c         *tend.Client
	neighbour *tend.Sandbox
	standing  process.Process // a program of the neighbour's, with a descendant
	roles     map[string]int
}

func open(t *testing.T) *world {
	w := &world{Daemon: testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}})}
	w.c = w.Connect(t)
	w.neighbour = proctest.Value(w.c.CreateSandbox(t.Context(), tend.SandboxSpec{Name: "neighbour", Isolation: tend.IsolationFull}))(t)
	w.standing = proctest.Start(t, programs(t, w.neighbour), process.Spec{Shell: "(setsid sleep 1000 &); exec sleep 1000"})
	w.roles = w.Roles()
	return w
}

// goesOn fails if the daemon or the neighbour have suffered.
func (w *world) goesOn(t *testing.T) {
	t.Helper()
	if now := w.Roles(); !maps.Equal(now, w.roles) {
		t.Errorf("roles have died: they were %v and are %v", w.roles, now)
		w.roles = now
	}
	p := proctest.Start(t, programs(t, w.neighbour), process.Spec{Shell: "echo on > /tmp/file; cat /tmp/file"})
	proctest.WantOutput(t, p, process.Stdout, "on\n")
	proctest.WantExit(t, p, 0)
	if in := proctest.Info(t, w.standing); in.Exit != nil {
		t.Errorf("a program of the neighbour's has ended: %+v", in.Exit)
	}
	outside := proctest.Start(t, w.c, process.Spec{Argv: []string{"true"}})
	proctest.WantExit(t, outside, 0)
}

// sandbox makes one to attack from. That it can be removed at the end belongs to each attempt.
func (w *world) sandbox(t *testing.T, change ...func(*tend.SandboxSpec)) *tend.Sandbox {
	t.Helper()
	spec := tend.SandboxSpec{Isolation: tend.IsolationFull}
	if !testkeeper.IsRootless() {
		spec.Size = tend.SandboxSize{Memory: 512 << 20, Tasks: 400}
	}
	for _, f := range change {
		f(&spec)
	}
	s := proctest.Value(w.c.CreateSandbox(t.Context(), spec))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := s.Destroy(ctx); err != nil {
			t.Errorf("the sandbox cannot be removed: %v", err)
		}
	})
	return s
}

// prelude is before each program. call makes a system call and returns its result, or the
// name of its error.
const prelude = `
import ctypes, errno, fcntl, os, resource, select, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    r = libc.syscall(ctypes.c_long(number), *[a if isinstance(a, (bytes, ctypes.Array,
        ctypes.Structure)) else ctypes.c_void_p(a) for a in args])
    return r if r >= 0 else errno.errorcode[ctypes.get_errno()]
def tried(f):
    try: return f()
    except OSError as e: return errno.errorcode[e.errno]
def holds(what):
    print("holds", what, flush=True)
    sys.stdin.read()
`

// numbers are the system calls by the names that programs have for them.
var numbers = func() *strings.Replacer {
	all := map[string]int{
		"SYS_adjtimex": unix.SYS_ADJTIMEX, "SYS_clock_adjtime": unix.SYS_CLOCK_ADJTIME, "SYS_clock_settime": unix.SYS_CLOCK_SETTIME,
		"SYS_clone": unix.SYS_CLONE, "SYS_exit": unix.SYS_EXIT, "SYS_fanotify_init": unix.SYS_FANOTIFY_INIT,
		"SYS_inotify_init1": unix.SYS_INOTIFY_INIT1, "SYS_ioprio_set": unix.SYS_IOPRIO_SET, "SYS_kcmp": unix.SYS_KCMP,
		"SYS_mq_open": unix.SYS_MQ_OPEN, "SYS_pidfd_getfd": unix.SYS_PIDFD_GETFD, "SYS_pidfd_open": unix.SYS_PIDFD_OPEN,
		"SYS_prlimit64": unix.SYS_PRLIMIT64, "SYS_process_vm_readv": unix.SYS_PROCESS_VM_READV, "SYS_ptrace": unix.SYS_PTRACE,
		"SYS_rt_sigqueueinfo": unix.SYS_RT_SIGQUEUEINFO, "SYS_setns": unix.SYS_SETNS, "SYS_setrlimit": unix.SYS_SETRLIMIT,
		"SYS_settimeofday": unix.SYS_SETTIMEOFDAY, "SYS_socket": unix.SYS_SOCKET, "SYS_socketpair": unix.SYS_SOCKETPAIR,
		"SYS_unshare": unix.SYS_UNSHARE, "SYS_vmsplice": unix.SYS_VMSPLICE,
	}
	var pairs []string
	for _, name := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) {
		pairs = append(pairs, name, fmt.Sprint(all[name]))
	}
	return strings.NewReplacer(pairs...)
}()

// programs are the processes of a sandbox.
func programs(t *testing.T, s *tend.Sandbox) *tend.Client {
	t.Helper()
	return proctest.Value(s.Client(t.Context()))(t)
}

// python is a process of a program.
func python(user, text string) process.Spec {
	return process.Spec{User: user, Argv: []string{"/usr/bin/python3", "-c", prelude + numbers.Replace(text)}, Stdin: process.StdinPipe}
}

// says runs a program to its end and returns what it says.
func says(t *testing.T, s *tend.Sandbox, user, text string) string {
	t.Helper()
	spec := python(user, text)
	spec.Stdin = process.StdinNull
	p := proctest.Start(t, programs(t, s), spec)
	proctest.Wait(t, p, process.Until{EOF: true})
	out := strings.TrimSpace(proctest.Output(t, p, process.Stdout))
	if stderr := proctest.Output(t, p, process.Stderr); stderr != "" {
		out += "\n" + stderr
	}
	return out
}

// hold starts a program that says what it holds, and holds it until it is killed.
func hold(t *testing.T, s *tend.Sandbox, user, text string) (p process.Process, what string) {
	t.Helper()
	p = proctest.Start(t, programs(t, s), python(user, text))
	res := proctest.Wait(t, p, process.Until{Match: "^holds.*"})
	if !res.Met {
		t.Fatalf("it has ended with %+v: %s%s", res.Exit, proctest.Output(t, p, process.Stdout), proctest.Output(t, p, process.Stderr))
	}
	return p, strings.TrimPrefix(res.Match, "holds ")
}

// end lets a program that holds something end, and returns what else it says.
func end(t *testing.T, p process.Process) string {
	t.Helper()
	proctest.WriteLast(t, p, "")
	proctest.Wait(t, p, process.Until{EOF: true})
	return proctest.Output(t, p, process.Stdout) + proctest.Output(t, p, process.Stderr)
}

// starts starts so many programs in a sandbox, several at once, and returns the errors.
func starts(t *testing.T, s *tend.Sandbox, n int, spec process.Spec) []error {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := programs(t, s)
	for range 4 {
		wg.Go(func() {
			for range n / 4 {
				p, err := c.Start(ctx, spec)
				if err == nil {
					_, err = p.Wait(ctx, process.Until{EOF: true})
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		t.Error(errors.Join(append(errs, err)...))
	}
	return errs
}

// memory of the server, in bytes.
func (w *world) memory(t *testing.T) int64 {
	t.Helper()
	b := proctest.Value(os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.Roles()[testdaemon.Server])))(t)
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

// grewBy fails if the server's memory has grown by more than so many bytes since before.
func (w *world) grewBy(t *testing.T, before, most int64) {
	t.Helper()
	if now := w.memory(t); now > before+most {
		t.Errorf("the server had %d MiB and has %d", before>>20, now>>20)
	}
}
