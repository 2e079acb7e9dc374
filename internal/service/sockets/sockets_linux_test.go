package sockets

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// askRole makes the test binary ask a holder for its sockets: NAME PID.
const askRole = "HELD_TEST_ASK"

func TestMain(m *testing.M) {
	if Called(os.Args) {
		os.Exit(Main(os.Args[1:], os.Environ()))
	}
	if who := os.Getenv(askRole); who != "" {
		name, pid, _ := strings.Cut(who, " ")
		n, _ := strconv.Atoi(pid)
		r, fds, err := ask(name, n, request{Give: true})
		fmt.Println(len(fds), r.Names, err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// started is a holder of the test's own.
func started(t *testing.T) (name string, pid int) {
	t.Helper()
	name = fmt.Sprintf("tend-test-%d-%s", os.Getpid(), t.Name())
	argv := HolderArgv([]string{proctest.Value(os.Executable())(t)}, name)
	if NameOf(argv) != name {
		t.Fatalf("the name in %q is %q", argv, NameOf(argv))
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	proctest.Eventually(t, "the holder listens", func() bool { return !errors.Is(Hold(name, cmd.Process.Pid, nil), syscall.ECONNREFUSED) })
	return name, cmd.Process.Pid
}

// When all of tend is killed, its pipes break. Sockets that nobody can ask for any more
// would be in the way of the next daemon.
func TestAHolderThatNobodyHearsEnds(t *testing.T) {
	name := fmt.Sprintf("tend-test-%d-%s", os.Getpid(), t.Name())
	argv := HolderArgv([]string{proctest.Value(os.Executable())(t)}, name)
	cmd := exec.Command(argv[0], argv[1:]...)
	out := proctest.Value(cmd.StdoutPipe())(t)
	proctest.Must(t, cmd.Start())
	path := filepath.Join(t.TempDir(), "s")
	proctest.Eventually(t, "it holds", func() bool { return Hold(name, cmd.Process.Pid, []Socket{{"a", "unix:" + path}}) == nil })
	out.Close()
	proctest.Must(t, cmd.Wait())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("it has left its file: %v", err)
	}
}

func asked(t *testing.T, name string, pid int, as *syscall.Credential) string {
	t.Helper()
	// By a file of its own, which each user may execute.
	self := proctest.Value(os.Open(proctest.Value(os.Executable())(t)))(t)
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = "/"
	cmd.Env = []string{askRole + "=" + name + " " + strconv.Itoa(pid)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out := proctest.Value(cmd.CombinedOutput())(t)
	return strings.TrimSpace(string(out))
}

func TestAHolderGivesItsSocketsToItsUserAlone(t *testing.T) {
	name, pid := started(t)
	addr := "unix:" + filepath.Join(t.TempDir(), "s")
	proctest.Must(t, Hold(name, pid, []Socket{{"a", addr}}))
	if got := asked(t, name, pid, nil); got != "1 [a] <nil>" {
		t.Errorf("its user gets %q", got)
	}
	if got := asked(t, name, os.Getpid(), nil); !strings.HasPrefix(got, "0 [] pid "+strconv.Itoa(pid)) {
		t.Errorf("who means another process gets %q", got)
	}
	if os.Geteuid() != 0 {
		return // nobody else can be had
	}
	if got := asked(t, name, pid, &syscall.Credential{Uid: 65534, Gid: 65534}); !strings.HasPrefix(got, "0 []") || strings.HasSuffix(got, "<nil>") {
		t.Errorf("another user gets %q", got)
	}
}

func TestWhatIsNoQuestionEndsNoHolder(t *testing.T) {
	name, pid := started(t)
	addr := fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	proctest.Must(t, Hold(name, pid, []Socket{{"a", addr}}))
	many := make([]Socket, MaxSockets+1)
	for i := range many {
		many[i] = Socket{"a", addr}
	}
	for what, send := range map[string]func(fd int){
		"nothing":      func(int) {},
		"no JSON":      func(fd int) { _ = unix.Send(fd, []byte("{"), 0) },
		"another kind": func(fd int) { _ = unix.Send(fd, []byte(`{"hold": 3, "give": "x"}`), 0) },
		"too much":     func(fd int) { _ = unix.Send(fd, make([]byte, 2*maxMessage), 0) },
		"descriptors":  func(fd int) { _ = send(fd, request{}, []int{0, 1, 2}) },
		"too many":     func(fd int) { _ = send(fd, request{Hold: many}, nil) },
	} {
		fd := proctest.Value(dial(name, pid))(t)
		send(fd)
		unix.Close(fd)
		if err := Hold(name, pid, []Socket{{"a", addr}}); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
	for _, bad := range []string{"", "x", "unix:", "127.0.0.1", "1.2.3.4:x", "unix:/no/such/directory/s"} {
		err := Hold(name, pid, []Socket{{"a", addr}, {"b", bad}})
		if failed, ok := errors.AsType[*SocketError](err); !ok || failed.Name != "b" {
			t.Errorf("an address that is none, %q: got %v", bad, err)
		}
	}
	c := proctest.Value(net.Dial("tcp", addr))(t) // and that one is held still
	c.Close()
}

// The runtime of this program may have descriptors where those of the command belong.
func TestACommandHasItsDescriptorsWhateverWasThere(t *testing.T) {
	name, pid := started(t)
	dir := t.TempDir()
	var want []Socket
	for i := range MaxSockets {
		want = append(want, Socket{fmt.Sprint("s", i), fmt.Sprintf("unix:%s/%d", dir, i)})
	}
	proctest.Must(t, Hold(name, pid, want))
	const script = `echo $LISTEN_FDS $LISTEN_PID $$ $LISTEN_FDNAMES; i=0; while [ $i -lt 40 ]; do [ -S /proc/$$/fd/$i ] && printf "$i "; i=$((i+1)); done; echo`
	argv := Argv([]string{proctest.Value(os.Executable())(t)}, name, pid, []string{"sh", "-c", script})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LISTEN_FDS=7", "LISTEN_PID=1", "LISTEN_FDNAMES=x")
	// Some of these stay open in it, where the sockets belong.
	for range 5 {
		r, w, err := os.Pipe()
		proctest.Must(t, err)
		defer r.Close()
		defer w.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, r, w)
	}
	out := proctest.Value(cmd.StdoutPipe())(t)
	proctest.Must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var got []string
	for lines.Scan() {
		got = append(got, lines.Text())
	}
	_, _ = io.Copy(io.Discard, out)
	proctest.Must(t, cmd.Wait())
	names, fds := "s0", ""
	for i := 1; i < MaxSockets; i++ {
		names += fmt.Sprint(":s", i)
	}
	for i := range MaxSockets {
		fds += fmt.Sprint(3+i, " ")
	}
	p := cmd.Process.Pid
	if len(got) != 2 || got[0] != fmt.Sprintf("%d %d %d %s", MaxSockets, p, p, names) || got[1] != fds {
		t.Errorf("it has %q", got)
	}
}

// A machine without room for a question loses no sockets by it.
func TestAHolderOutlivesAWantOfDescriptors(t *testing.T) {
	name, pid := started(t)
	addr := "unix:" + filepath.Join(t.TempDir(), "s")
	proctest.Must(t, Hold(name, pid, []Socket{{"a", addr}}))
	had := proctest.Value(os.Lstat(strings.TrimPrefix(addr, "unix:")))(t)
	var old unix.Rlimit
	proctest.Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old))
	proctest.Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}, nil))
	_ = Hold(name, pid, []Socket{{"a", addr}}) // the kernel may have a descriptor for it already
	fd := proctest.Value(dial(name, pid))(t)
	defer unix.Close(fd)
	proctest.Must(t, send(fd, request{Give: true}, nil))
	waits := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(waits, 1000); n != 0 {
		t.Errorf("it has answered, or ended: %v, %v", waits[0].Revents, err)
	}
	proctest.Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil))
	var r reply
	fds := proctest.Value(receive(fd, &r))(t)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if now := proctest.Value(os.Lstat(strings.TrimPrefix(addr, "unix:")))(t); len(fds) != 1 || !os.SameFile(had, now) {
		t.Errorf("it gives %v", r)
	}
}

// A signal at the wrong moment once closed the sockets of a service, and refused who waited.
func TestAHeldSocketStaysWhateverSignalsCome(t *testing.T) {
	s, err := listen(Socket{Name: "http", Address: "127.0.0.1:0"})
	proctest.Must(t, err)
	defer unix.Close(s.fd)
	proctest.InAStorm(t, func(*atomic.Int64) {
		for range 50_000 {
			if err := renew(s.fd); err != nil {
				t.Fatal(err)
			}
		}
	})
}
