package cli

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestSocketsOfSystemd: sockets that are passed as systemd does are served in place of
// the defaults. They are this test's and stay open, so nobody is refused while there is
// no daemon, and what is asked then is answered by the next one.
func TestSocketsOfSystemd(t *testing.T) {
	dir := t.TempDir()
	state, path := filepath.Join(dir, "state"), filepath.Join(dir, "s.sock")
	tcp := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t).(*net.TCPListener)
	unix := proctest.Value(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	defer tcp.Close()
	defer unix.Close()
	tend := filepath.Join(binaries, "tend")
	// The shell knows the pid that tend will have.
	start := func(fds string, files ...*os.File) *exec.Cmd {
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", tend, "--state-dir", state, "serve", "--keep")
		cmd.Env = append(os.Environ(), "LISTEN_FDS="+fds, "LISTEN_FDNAMES=http:socket")
		cmd.ExtraFiles = files
		return cmd
	}
	serve := func() *exec.Cmd {
		cmd := start("2", proctest.Value(tcp.File())(t), proctest.Value(unix.File())(t))
		log := proctest.Value(os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
		cmd.Stdout, cmd.Stderr = log, log // what is kept holds it open
		proctest.Must(t, cmd.Start())
		for _, f := range append(cmd.ExtraFiles, log) {
			f.Close()
		}
		return cmd
	}
	// ask connects and asks; what it returns waits for the answer.
	ask := func() func() {
		t.Helper()
		c := proctest.Value(net.Dial("tcp", tcp.Addr().String()))(t)
		proctest.Value(c.Write([]byte("GET /-/readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")))(t)
		return func() {
			t.Helper()
			defer c.Close()
			if r := proctest.Value(http.ReadResponse(bufio.NewReader(c), nil))(t); r.StatusCode != http.StatusOK {
				t.Errorf("who asked before there was a daemon gets %s", r.Status)
			}
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tend, append([]string{"--url", "unix://" + path}, args...)...)
		cmd.Env = append(os.Environ(), "TEND_STATE_DIR="+state)
		cmd.Stderr = os.Stderr
		return string(proctest.Value(cmd.Output())(t))
	}

	answered := ask()
	daemon := serve()
	t.Cleanup(func() { exec.Command(tend, "--state-dir", state, "shutdown").Run() })
	answered()
	if env := run("run", "--", "env"); strings.Contains(env, "LISTEN_") {
		t.Errorf("a process inherits what was for tend serve:\n%s", env)
	}
	run("run", "-d", "-i", "--name", "kept", "--", "cat")
	if _, err := os.Stat(filepath.Join(state, "tend.sock")); err == nil {
		t.Error("the default socket is there, too")
	}

	proctest.Must(t, daemon.Process.Signal(syscall.SIGTERM))
	proctest.Must(t, daemon.Wait())
	answered = ask()
	daemon = serve()
	answered()
	run("input", "kept", "--eof", "still here")
	run("wait", "kept")
	if out := run("logs", "kept"); out != "still here\n" {
		t.Errorf("the process that was kept writes %q", out)
	}
	run("shutdown")
	proctest.Must(t, daemon.Wait())

	file := proctest.Value(os.Open("/dev/null"))(t)
	defer file.Close()
	for _, c := range []struct{ fds, want string }{
		{"1", "descriptor 3 cannot be served"},
		{"one", "is not the number of sockets"},
		{"-1", "is not the number of sockets"},
		{"100000", "is not the number of sockets"},
	} {
		out, err := start(c.fds, file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("LISTEN_FDS=%s: %v, %s", c.fds, err, out)
		}
	}
}
