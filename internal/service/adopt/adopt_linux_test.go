package adopt

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// listenRole makes the test binary listen on any port, and say which.
const listenRole = "ADOPT_TEST_LISTEN"

func TestMain(m *testing.M) {
	if os.Getenv(listenRole) != "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			os.Exit(1)
		}
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
		for { // with nothing that waits for an event, the runtime would see a deadlock and end
			_, _ = l.Accept()
		}
	}
	goleak.VerifyTestMain(m)
}

// orphan starts a line of a shell that belongs to nobody here: its parent has ended. It says
// its pid and what follows that in its first line: the pids of others come last. All of them
// end with the test.
func orphan(t *testing.T, line string, attr *syscall.SysProcAttr) (pid int, said string) {
	t.Helper()
	mark := "ADOPT_TEST=" + rand.Text()
	t.Cleanup(func() { // whatever the test has done to it, and whatever it has left
		proctest.Eventually(t, "nothing is left", func() bool { return !killMarked(t, mark) })
	})
	cmd := exec.Command("/bin/sh", "-c", "("+line+") & :")
	cmd.Env = append(os.Environ(), mark)
	cmd.SysProcAttr = attr
	r, w, err := os.Pipe()
	proctest.Must(t, err)
	defer r.Close()
	cmd.Stdout = w
	err = cmd.Run()
	w.Close()
	proctest.Must(t, err)
	text := proctest.Value(bufio.NewReader(r).ReadString('\n'))(t)
	word, said, _ := strings.Cut(strings.TrimSpace(text), " ")
	return proctest.Value(strconv.Atoi(word))(t), said
}

// killMarked kills what has a mark in its environment, and reports whether there was any.
func killMarked(t *testing.T, mark string) (found bool) {
	t.Helper()
	for _, pid := range proctest.Value(procfs.PIDs())(t) {
		if env, err := procfs.Read(pid, "environ"); err == nil && bytes.Contains(env, []byte(mark)) {
			found = unix.Kill(pid, unix.SIGKILL) == nil || found
		}
	}
	return found
}

// sleeper is an orphan that does nothing.
func sleeper(t *testing.T) int {
	t.Helper()
	pid, _ := orphan(t, "exec sh -c 'echo $$; exec sleep 1000 >/dev/null'", nil)
	return pid
}

// guard is that of a daemon that has started nothing.
func guard(t *testing.T) *Guard { return &Guard{Manager: testkeeper.New(t)} }

func lives(pid int) bool {
	s, ok := procfs.ReadStat(pid)
	return ok && !s.Dead()
}

func TestAProcessIsFoundByItsPIDFile(t *testing.T) {
	g, file := guard(t), filepath.Join(t.TempDir(), "web.pid")
	rule := &config.Adopt{PIDFile: file}
	for what, text := range map[string]string{"empty": "", "blank": " \n\n", "of a pid that nobody has": "4194304\n"} {
		proctest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		if a, err := Find(t.Context(), rule, g); a != nil || err != nil {
			t.Errorf("by a file that is %s: %+v, %v", what, a, err)
		}
	}
	proctest.Must(t, os.Remove(file))
	if a, err := Find(t.Context(), rule, g); a != nil || err != nil {
		t.Errorf("without the file: %+v, %v", a, err)
	}
	for _, text := range []string{"web", "-3", "0", "1 2", "99999999999", strings.Repeat("9", 200)} {
		proctest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		if a, err := Find(t.Context(), rule, g); a != nil || err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("by %.20q: %+v, %v", text, a, err)
		}
	}
	proctest.Must(t, os.Remove(file))
	proctest.Must(t, unix.Mkfifo(file, 0o600))
	if a, err := Find(t.Context(), rule, g); a != nil || err == nil {
		t.Errorf("by a FIFO: %+v, %v", a, err)
	}
	proctest.Must(t, os.Remove(file))

	pid := sleeper(t)
	proctest.Must(t, os.WriteFile(file, []byte(fmt.Sprintf("%d\n/data\nmore of PostgreSQL's\n", pid)), 0o600))
	a, err := Find(t.Context(), rule, g)
	if err != nil || a == nil || a.PID != pid || a.Start == 0 || a.Leads {
		t.Fatalf("by %d: %+v, %v", pid, a, err)
	}
	// A process that began after the file was written has only got the number.
	before := time.Now().Add(-time.Hour)
	proctest.Must(t, os.Chtimes(file, before, before))
	if a, err := Find(t.Context(), rule, g); a != nil || err != nil {
		t.Errorf("by a stale file: %+v, %v", a, err)
	}
}

func TestAProcessIsFoundByItsPort(t *testing.T) {
	g := guard(t)
	self := proctest.Value(os.Executable())(t)
	pid, said := orphan(t, fmt.Sprintf("exec sh -c 'printf \"$$ \"; exec env %s=1 %s'", listenRole, self), nil)
	port := proctest.Value(strconv.Atoi(said))(t)
	a, err := Find(t.Context(), &config.Adopt{Port: port}, g)
	if err != nil || a == nil || a.PID != pid {
		t.Fatalf("at port %d of %d: %+v, %v", port, pid, a, err)
	}
	proctest.Must(t, unix.Kill(pid, unix.SIGKILL))
	proctest.Value(Open(*a).Wait(t.Context(), process.Until{}))(t)
	if a, err := Find(t.Context(), &config.Adopt{Port: port}, g); a != nil || err != nil {
		t.Errorf("after its end: %+v, %v", a, err)
	}
	// This program listens: it is tend here.
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	if a, err := Find(t.Context(), &config.Adopt{Port: l.Addr().(*net.TCPAddr).Port}, g); a != nil || !errors.Is(err, process.ErrPermission) {
		t.Errorf("of this program: %+v, %v", a, err)
	}
}

func TestWhomNobodyAdopts(t *testing.T) {
	proctest.Root(t) // another user's process is started
	m := testkeeper.New(t)
	p := proctest.Start(t, m, process.Spec{Name: "api", Shell: "sleep 1000 & echo $!; wait"})
	proctest.Wait(t, p, process.Until{Match: "[0-9]+"})
	below := 0
	for _, pid := range procfs.Children(proctest.Info(t, p).PID) {
		below = pid
	}
	adopted, child := sleeper(t), 0
	parent, said := orphan(t, "exec sh -c 'sleep 1000 >/dev/null & echo $$ $!; wait >/dev/null'", nil)
	child = proctest.Value(strconv.Atoi(said))(t)
	other, _ := orphan(t, "exec sh -c 'echo $$; exec sleep 1000 >/dev/null'", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	role := sleeper(t)
	g := &Guard{Manager: m, Roles: []int{role}, Others: map[string]supervisor.Adopted{"db": {PID: adopted}}}
	for _, tt := range []struct {
		what string
		pid  int
		g    *Guard
		why  string
	}{
		{"the first process", 1, g, "the first process"},
		{"this program", os.Getpid(), g, "tend itself"},
		{"a role", role, g, "tend itself"},
		{"what started this program", os.Getppid(), g, "started by"},
		{"a process of tend's", proctest.Info(t, p).PID, g, "(api)"},
		{"what that has started", below, g, "runs below pid"},
		{"another user's", other, g, "user: 65534"},
		{"root's, for another user's service", adopted, &Guard{Manager: m, User: "65534"}, "uid 0"},
		{"another service's", adopted, g, "the service db already"},
		{"what is below another service's", child, &Guard{Manager: m, Others: map[string]supervisor.Adopted{"db": {PID: parent}}}, "runs below"},
		{"what is above another service's", parent, &Guard{Manager: m, Others: map[string]supervisor.Adopted{"db": {PID: child}}}, "is above"},
	} {
		var refused *RefusedError
		if a, err := Check(t.Context(), tt.pid, tt.g); a != nil || !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.why) || !errors.Is(err, process.ErrPermission) {
			t.Errorf("%s: %+v, %v; want %q", tt.what, a, err, tt.why)
		}
	}
	if a, err := Check(t.Context(), other, &Guard{Manager: m, User: "65534"}); err != nil || a.PID != other {
		t.Errorf("of the service's user: %+v, %v", a, err)
	}
	for _, pid := range []int{0, -1} {
		if _, err := Check(t.Context(), pid, g); err == nil {
			t.Errorf("pid %d is taken", pid)
		}
	}
	if _, err := Check(t.Context(), 1<<22, g); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("a pid that nobody has: %v", err)
	}
}

func TestAPIDThatIsAnothersNowIsNotTouched(t *testing.T) {
	pid := sleeper(t)
	a := *proctest.Value(Check(t.Context(), pid, guard(t)))(t)
	a.Start-- // as if the program before it had been adopted
	p := Open(a)
	in := proctest.Value(p.Info(t.Context()))(t)
	if in.Exit == nil || !in.Exit.Lost() || in.Exit.Code != -1 || !in.TreeGone {
		t.Errorf("it is %+v", in)
	}
	for _, scope := range []process.Scope{process.ScopeTree, process.ScopeLeader} {
		if err := p.Signal(t.Context(), 9, scope); !errors.Is(err, process.ErrExited) {
			t.Errorf("a signal: %v", err)
		}
	}
	if _, err := p.Kill(t.Context()); !errors.Is(err, process.ErrExited) {
		t.Errorf("kill: %v", err)
	}
	if res := proctest.Value(p.Wait(t.Context(), process.Until{TreeGone: true}))(t); res.Exit == nil || !res.Met {
		t.Errorf("wait: %+v", res)
	}
	if !lives(pid) {
		t.Error("the other program was killed")
	}
}

func TestTheEndIsSeenAndItsStatusIsNotInvented(t *testing.T) {
	pid := sleeper(t)
	p := Open(*proctest.Value(Check(t.Context(), pid, guard(t)))(t))
	if in := proctest.Value(p.Info(t.Context()))(t); in.PID != pid || in.Exit != nil || in.State != process.Running || time.Since(in.Started) > time.Hour {
		t.Errorf("it is %+v", in)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Wait(short, process.Until{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that nobody waits for: %v", err)
	}
	done := make(chan process.WaitResult, 1)
	go func() {
		res, _ := p.Wait(t.Context(), process.Until{})
		done <- res
	}()
	proctest.Must(t, p.Signal(t.Context(), int(unix.SIGTERM), process.ScopeLeader))
	if res := <-done; res.Exit == nil || res.Exit.Cause != process.CauseLost || res.Exit.Signal != 0 || res.Exit.Code != -1 {
		t.Errorf("it ended as %+v", res.Exit)
	}
	for _, err := range []error{p.Pin(t.Context(), true), p.Remove(t.Context()), p.Trim(t.Context(), process.Stdout, 0)} {
		if !errors.Is(err, process.ErrUnsupported) {
			t.Errorf("%v", err)
		}
	}
	if _, err := p.Read(t.Context(), process.ReadOptions{}); !errors.Is(err, process.ErrUnsupported) {
		t.Errorf("its output: %v", err)
	}
}

// A child that ignores signals, one in a session of its own, and one that has lost its
// parent since it was seen are of the tree; others of the same session are not.
func TestItsWholeTreeIsKilledAndNobodyElse(t *testing.T) {
	dir := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "tree"), []byte("trap '' TERM\n(trap '' TERM; exec sleep 1000) >/dev/null & a=$!\nsetsid sleep 1000 >/dev/null & b=$!\necho $$ $a $b $1\nwait\n"), 0o600))
	pid, said := orphan(t, "sleep 1000 >/dev/null & sh "+dir+"/tree $!; :", nil)
	var rest []int
	for _, word := range strings.Fields(said) {
		rest = append(rest, proctest.Value(strconv.Atoi(word))(t))
	}
	if len(rest) != 3 {
		t.Fatalf("it says %q", said)
	}
	beside := rest[2]
	p := Open(*proctest.Value(Check(t.Context(), pid, guard(t)))(t))
	if pids := p.PIDs(); len(pids) < 3 || pids[0] != pid {
		t.Errorf("the tree of %d is %v", pid, pids)
	}
	proctest.Must(t, unix.Kill(pid, unix.SIGKILL)) // its children lose their parent
	proctest.Value(p.Wait(t.Context(), process.Until{}))(t)
	if in := proctest.Value(p.Info(t.Context()))(t); in.Exit == nil || in.TreeGone {
		t.Errorf("its children live, and it is %+v", in)
	}
	if res, err := p.Kill(t.Context()); err != nil || len(res.Survivors) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, pid := range rest[:2] {
		if lives(pid) {
			t.Errorf("pid %d lives on", pid)
		}
	}
	if !lives(beside) {
		t.Error("a process beside it was killed")
	}
	if in := proctest.Value(p.Info(t.Context()))(t); !in.TreeGone {
		t.Errorf("it is %+v", in)
	}
}

// Whoever leads a session leaves it behind, and it is still known by its number.
func TestASessionThatItLeadsIsOfIt(t *testing.T) {
	pid, said := orphan(t, "exec setsid sh -c 'sleep 1000 >/dev/null & echo $$ $!; exec sleep 1000 >/dev/null'", nil)
	member := proctest.Value(strconv.Atoi(said))(t)
	a := *proctest.Value(Check(t.Context(), pid, guard(t)))(t)
	if !a.Leads {
		t.Errorf("it is %+v", a)
	}
	proctest.Must(t, unix.Kill(pid, unix.SIGKILL))
	proctest.Value(Open(a).Wait(t.Context(), process.Until{}))(t)
	p := Open(a) // one that has seen nothing of it before
	proctest.Must(t, p.Signal(t.Context(), int(unix.SIGTERM), process.ScopeTree))
	proctest.Value(p.Wait(t.Context(), process.Until{TreeGone: true}))(t)
	if lives(member) {
		t.Error("it lives on")
	}
}

func TestThreadsOfTheKernelAreKnown(t *testing.T) {
	if kernelThread(os.Getpid()) {
		t.Error("this program is taken for one")
	}
	for _, pid := range procfs.Children(2) { // none in a container
		if s, _ := procfs.ReadStat(2); s.PPID == 0 && !kernelThread(pid) {
			t.Errorf("pid %d is not known as one", pid)
		}
	}
}

func FuzzPIDFile(f *testing.F) {
	for _, text := range []string{"", "1", " 42\n", "42\n/data\n", "-1", "0", "x", "99999999999999999999", "4 2", "\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pid, err := parsePID(text)
		if pid < 0 || pid > 1<<31-1 || err != nil && pid != 0 {
			t.Errorf("%q is %d, %v", text, pid, err)
		}
		uidsOf([]byte("Name:\tx\nUid:" + text))
	})
}
