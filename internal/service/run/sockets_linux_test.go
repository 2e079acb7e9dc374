package run_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// socketRole makes the test binary a server that is given its sockets: it tells each who
// connects its pid and the name of the socket. "deaf" accepts nobody; "spoil" accepts
// nobody, and shuts its sockets down.
const socketRole = "RUN_TEST_SOCKETS"

// serveSockets never returns.
func serveSockets() {
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	own := os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid())
	mode := os.Getenv(socketRole)
	for i, name := range names {
		if mode == "spoil" {
			_ = syscall.SetNonblock(3+i, true)
			_ = syscall.Listen(3+i, 0)
			_ = syscall.Shutdown(3+i, syscall.SHUT_RDWR)
		}
		if mode != "serve" {
			continue
		}
		go func() {
			for {
				c, _, err := syscall.Accept(3 + i) // as it is: it must block
				if err != nil {
					fmt.Println("accept:", err)
					os.Exit(1)
				}
				_, _ = syscall.Write(c, fmt.Appendf(nil, "%d %s", os.Getpid(), name))
				_ = syscall.Close(c)
			}
		}()
	}
	fmt.Println("fds", os.Getenv("LISTEN_FDS"), "own", own, "names", names, "args", os.Args[1:])
	select {}
}

// web is a service with sockets.
func web(mode, more string, sockets ...string) string {
	return fmt.Sprintf("  web: {command: [$SERVE, a, 'b c'], env: {%s: %s}, restart: {max: 2, delay: 10ms, retry: 0}, sockets: {%s}%s}\n", socketRole, mode, strings.Join(sockets, ", "), more)
}

func call(t *testing.T, network, addr string) string {
	t.Helper()
	return heard(t, proctest.Value(net.Dial(network, addr))(t))
}

// heard reads what a server says.
func heard(t *testing.T, c net.Conn) string {
	t.Helper()
	defer c.Close()
	proctest.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return string(proctest.Value(io.ReadAll(c))(t))
}

func refused(t *testing.T, network, addr string) {
	t.Helper()
	proctest.Eventually(t, addr+" is closed", func() bool {
		c, err := net.Dial(network, addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

func address(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t)) }

// holders are the processes that hold sockets.
func holders(t *testing.T, m process.Manager) (all []process.Info) {
	t.Helper()
	return slices.DeleteFunc(proctest.Value(m.List(t.Context(), process.Filter{Live: true}))(t), func(in process.Info) bool { return in.Spec.Labels[run.LabelSockets] == "" })
}

func noHolder(t *testing.T, m process.Manager) {
	t.Helper()
	proctest.Eventually(t, "nobody holds sockets", func() bool { return len(holders(t, m)) == 0 })
}

func output(t *testing.T, m process.Manager, s run.Status) string {
	t.Helper()
	return proctest.Wait(t, proctest.Find(t, m, s.ID), process.Until{Match: "fds .*"}).Match
}

func TestSocketsComeAsSystemdPassesThem(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	one, two := address(t), address(t)
	l.declare(web("serve", "", "z: '"+one+"'", "a: '"+two+"'"))
	l.up()
	s := l.ready("web")
	pid := pidOf(t, m, s)
	if got := output(t, m, s); got != "fds 2 own true names [z a] args [a b c]" {
		t.Errorf("it has %s", got)
	}
	for addr, name := range map[string]string{one: "z", two: "a"} {
		if got, want := call(t, "tcp", addr), fmt.Sprintf("%d %s", pid, name); got != want {
			t.Errorf("%s answers %q; want %q", addr, got, want)
		}
	}
	// A line has them, too, and as its own if the shell becomes the program.
	l.declare(strings.Replace(web("serve", "", "a: '"+two+"'"), "[$SERVE, a, 'b c']", "'echo hello; exec $SERVE'", 1))
	s = l.until("web", "another run", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if got := output(t, m, s); got != "fds 1 own true names [a] args []" {
		t.Errorf("of a line it has %s", got)
	}
	refused(t, "tcp", one)
	if got := call(t, "tcp", two); !strings.HasSuffix(got, " a") {
		t.Errorf("a line answers %q", got)
	}
	l.declare("  web: {command: 'for i in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$i ] && printf \"$i \"; done; echo; exec sleep 1000', sockets: {a: '" + one + "', b: '" + two + "'}}\n")
	s = l.until("web", "a third run", func(s supervisor.State) bool { return s.Run == 3 && s.Ready })
	if got := proctest.Wait(t, proctest.Find(t, m, s.ID), process.Until{Match: "0 [0-9 ]*"}).Match; got != "0 1 2 3 4 " {
		t.Errorf("its descriptors are %q", got)
	}
	l.declare(strings.Replace(web("serve", "", "a: '"+two+"'"), "$SERVE", "no-such-program", 1))
	if s := l.phase("web", supervisor.Failed); s.State.Exit == nil || s.State.Exit.Code != 127 {
		t.Errorf("without a program: %+v", s.State)
	}
}

// Who connects while one run goes and the next comes is answered by the next, whatever the
// one before has done to its sockets, and though another of its sockets moves.
func TestWhoWaitsIsAnsweredByTheNextRun(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, t.TempDir())
	one, two, three, path := address(t), address(t), address(t), filepath.Join(dir, "s")
	unix := "local: 'unix:" + path + "'"
	l.declare(web("deaf", "", "http: '"+one+"'", "admin: '"+two+"'", unix))
	l.up()
	l.ready("web")
	holder := holders(t, m)
	var waiting []net.Conn
	for range 20 {
		waiting = append(waiting, proctest.Value(net.Dial("tcp", one))(t), proctest.Value(net.Dial("unix", path))(t))
	}
	l.declare(web("serve", "", "admin: '"+three+"'", "http: '"+one+"'", unix))
	s := l.until("web", "another run", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	pid := strconv.Itoa(pidOf(t, m, s))
	for i, c := range waiting {
		if got, name := heard(t, c), []string{" http", " local"}[i%2]; got != pid+name {
			t.Errorf("who waited hears %q; want %s", got, pid+name)
		}
	}
	if got := call(t, "tcp", three); got != pid+" admin" {
		t.Errorf("the one that moved answers %q", got)
	}
	refused(t, "tcp", two)
	if now := holders(t, m); len(now) != 1 || now[0].PID != holder[0].PID {
		t.Errorf("the holder was %v, and is %v", holder[0].PID, now)
	}
	// One that ruins its sockets does so for itself alone.
	l.declare(web("spoil", "", "http: '"+one+"'", unix))
	output(t, m, l.until("web", "ruined", func(s supervisor.State) bool { return s.Run == 3 && s.Ready }))
	l.declare(web("serve", "", "http: '"+one+"'", unix))
	l.until("web", "mended", func(s supervisor.State) bool { return s.Run == 4 && s.Ready })
	if a, b := call(t, "tcp", one), call(t, "unix", path); !strings.HasSuffix(a, " http") || !strings.HasSuffix(b, " local") {
		t.Errorf("after one that shut them down %q and %q answer", a, b)
	}
}

func TestSocketsCloseWithTheirService(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, t.TempDir())
	addr, path := address(t), filepath.Join(dir, "s")
	sockets := []string{"http: '" + addr + "'", "local: 'unix:" + path + "'"}
	closed := func() {
		t.Helper()
		noHolder(t, m)
		refused(t, "tcp", addr)
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the file of the socket: %v", err)
		}
	}
	l.declare(web("serve", "", sockets...))
	l.up()
	l.ready("web")
	l.down()
	l.phase("web", supervisor.Idle)
	closed()
	l.up()
	l.ready("web")
	l.declare("  other: {command: exec sleep 1000}\n")
	closed()
	nothingLives(t, m)
	// One that is given up, or is done, listens no more.
	for _, how := range []string{"exit 1', restart: {max: 1, delay: 10ms, retry: 0}", "exit 0', restart: on-failure"} {
		l.declare("  web: {command: '" + how + ", sockets: {" + strings.Join(sockets, ", ") + "}}\n")
		l.up("web")
		l.until("web", "over", func(s supervisor.State) bool { return s.Phase == supervisor.Failed || s.Phase == supervisor.Completed })
		closed()
	}
}

func TestAnAddressInUseIsSaidWithWhoHasIt(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, t.TempDir())
	mine := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	path := filepath.Join(dir, "s")
	local := proctest.Value(net.Listen("unix", path))(t)
	fails := func(text string, says ...string) {
		t.Helper()
		l.declare(text)
		l.up()
		s := l.phase("web", supervisor.Failed)
		for _, want := range says {
			if !strings.Contains(s.State.Why, want) {
				t.Errorf("it says %q; want %q", s.State.Why, want)
			}
		}
		noHolder(t, m)
		l.down()
		l.phase("web", supervisor.Idle)
	}
	fails(web("serve", "", "free: '"+address(t)+"'", "http: '"+mine.Addr().String()+"'"), "could not be started", "the socket http", mine.Addr().String(), "in use", fmt.Sprintf("(pid %d)", os.Getpid()), "end that")
	fails(web("serve", "", "local: 'unix:"+path+"'"), "in use", "listens on "+path)
	fails(web("serve", "", "http: '203.0.113.7:80'"), "no such address")
	closed := filepath.Join(dir, "closed")
	proctest.Must(t, os.Mkdir(closed, 0o500))
	user := ""
	if os.Geteuid() == 0 { // root may write everywhere; its service may not
		user = ", user: '65534:65534'"
		openForAll(t)
	}
	if user == "" {
		fails(web("serve", "", "local: 'unix:"+closed+"/s'"), "may not make a file there")
	} else {
		fails(strings.ReplaceAll(web("serve", user, "local: 'unix:"+closed+"/s'"), "$SERVE", "sleep, 1000"), "may not make a file there")
	}
	// A file on which nobody listens any more is in nobody's way, and another file is.
	local.(*net.UnixListener).SetUnlinkOnClose(false)
	local.Close()
	mine.Close()
	l.declare(web("serve", "", "http: '"+mine.Addr().String()+"'", "local: 'unix:"+path+"'"))
	l.up()
	l.ready("web")
	if got := call(t, "unix", path); !strings.HasSuffix(got, " local") {
		t.Errorf("%q answers", got)
	}
	l.down()
	l.phase("web", supervisor.Idle)
	noHolder(t, m)
	proctest.Must(t, os.WriteFile(path, []byte("mine"), 0o600))
	fails(web("serve", "", "local: 'unix:"+path+"'"), "or it is no socket")
	if got := string(proctest.Value(os.ReadFile(path))(t)); got != "mine" {
		t.Errorf("the file has %q", got)
	}
}

// openForAll lets other users run the test binary.
func openForAll(t *testing.T) {
	t.Helper()
	for dir := filepath.Dir(proctest.Value(os.Executable())(t)); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		st := proctest.Value(os.Stat(dir))(t)
		proctest.Must(t, os.Chmod(dir, st.Mode().Perm()|0o055))
	}
}

// Without the process that holds its sockets a service would close them at its next
// restart. So it is restarted, once, with new ones.
func TestAServiceWhoseHolderDiesHasSocketsAgain(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	addr := address(t)
	l.declare(web("serve", "", "http: '"+addr+"'"))
	l.up()
	l.ready("web")
	call(t, "tcp", addr) // it has its sockets
	first := holders(t, m)[0]
	proctest.Must(t, syscall.Kill(first.PID, syscall.SIGKILL))
	s := l.until("web", "restarted", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if now := holders(t, m); len(now) != 1 || now[0].PID == first.PID {
		t.Errorf("the holders are %v; it was %d", now, first.PID)
	}
	if got := call(t, "tcp", addr); got != fmt.Sprintf("%d http", pidOf(t, m, s)) || s.State.Total != 1 || !l.noticed("web unheld") {
		t.Errorf("%q answers; it is %+v after %v", got, s.State, l.notices)
	}
}

// A holder that somebody has stopped is named with what to do, at once and at each start.
// Once it continues, so does the service, with the same sockets.
func TestAHolderThatIsStoppedIsNamed(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	addr := address(t)
	l.declare(strings.Replace(web("serve", "", "http: '"+addr+"'"), "max: 2", "max: 0", 1))
	l.up()
	before := pidOf(t, m, l.ready("web"))
	holder := holders(t, m)[0].PID
	proctest.Must(t, syscall.Kill(holder, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(holder, syscall.SIGCONT) }) // else nobody could end it
	proctest.Must(t, syscall.Kill(before, syscall.SIGKILL))
	said := fmt.Sprintf("pid %d, which holds its sockets, is stopped: kill -CONT %[1]d", holder)
	l.until("web", "told of", func(s supervisor.State) bool { return strings.Contains(s.Why, said) })
	proctest.Must(t, syscall.Kill(holder, syscall.SIGCONT))
	s := l.ready("web")
	if got, now := call(t, "tcp", addr), holders(t, m); got != fmt.Sprintf("%d http", pidOf(t, m, s)) || len(now) != 1 || now[0].PID != holder {
		t.Errorf("%q answers, and the holders are %v; it was %d", got, now, holder)
	}
}

// A supervisor that continues finds service and holder as they are. What belongs to no
// service any more is ended.
func TestASupervisorThatGoesOnFindsTheSockets(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, dir)
	addr := address(t)
	l.declare(web("serve", "", "http: '"+addr+"'"))
	l.up()
	before := pidOf(t, m, l.ready("web"))
	holder := holders(t, m)[0].PID
	l.stop()
	l = live(t, m, dir)
	if s := l.ready("web"); s.State.Run != 1 || pidOf(t, m, s) != before || holders(t, m)[0].PID != holder {
		t.Errorf("it is %+v", s.State)
	}
	proctest.Must(t, syscall.Kill(before, syscall.SIGKILL))
	l.until("web", "restarted", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if now := holders(t, m); len(now) != 1 || now[0].PID != holder {
		t.Errorf("the holder was %d, and is %v", holder, now)
	}
	l.down()
	l.phase("web", supervisor.Idle)
	noHolder(t, m)
	l.up()
	l.ready("web")
	call(t, "tcp", addr)
	holder = holders(t, m)[0].PID
	l.stop()
	// The holder died with nobody there to see it.
	proctest.Must(t, syscall.Kill(holder, syscall.SIGKILL))
	noHolder(t, m)
	l = live(t, m, dir)
	l.until("web", "restarted for its holder", func(s supervisor.State) bool { return s.Total == 2 && s.Ready })
	if got := call(t, "tcp", addr); !strings.HasSuffix(got, " http") {
		t.Errorf("%q answers", got)
	}
	l.stop()
	proctest.Must(t, os.Remove(filepath.Join(dir, "web.json")))
	live(t, m, dir)
	noHolder(t, m)
}
