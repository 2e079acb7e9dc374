package observe_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// role is the environment variable that makes the test binary a child of a
// test.
const role = "OBSERVE_TEST_ROLE"

func TestMain(m *testing.M) {
	if name := os.Getenv(role); name != "" {
		if err := play(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func play(name string) error {
	switch name {
	case "poll":
		_, err := unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, -1)
		return err
	case "select":
		var set unix.FdSet
		set.Set(0)
		_, err := unix.Select(1, &set, nil, nil, nil)
		return err
	case "epoll":
		ep, err := unix.EpollCreate1(0)
		if err != nil {
			return err
		}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, 0, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			return err
		}
		for {
			_, err = unix.EpollWait(ep, make([]unix.EpollEvent, 1), -1)
			if err != unix.EINTR {
				return err
			}
		}
	case "listen":
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			return err
		}
		fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
		_, err = l.Accept()
		return err
	case "listen elsewhere":
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{role + "=listen"}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		}
		return cmd.Run()
	}
	return fmt.Errorf("unknown role %q", name)
}

func self(t *testing.T, name string) process.Spec {
	t.Helper()
	exe := proctest.Value(os.Executable())(t)
	return process.Spec{Argv: []string{exe}, Env: map[string]string{role: name}, Stdin: process.StdinPipe}
}

func pid(t *testing.T, p process.Process) int {
	t.Helper()
	in := proctest.Info(t, p)
	return in.PID
}

func TestWaitForInput(t *testing.T) {
	t.Parallel()
	sh := func(line string) process.Spec { return process.Spec{Shell: line, Stdin: process.StdinPipe} }
	tty := func(line string) process.Spec {
		return process.Spec{Shell: line, PTY: &process.Size{Cols: 80, Rows: 24}}
	}
	onTTY := func(s process.Spec) process.Spec { s.PTY = &process.Size{Cols: 80, Rows: 24}; s.Stdin = 0; return s }
	tests := []struct {
		name string
		spec process.Spec
		want process.InputState
	}{
		{"cat on the stdin pipe", sh("exec cat"), process.InputCertain},
		{"read in the shell after a prompt", sh("printf 'name: '; read x"), process.InputCertain},
		{"a child of the shell reads the pipe", sh("exec 3<&0; (cat <&3); true"), process.InputCertain},
		{"read in the shell on a terminal", tty("read x"), process.InputCertain},
		{"a child reads the terminal by name", tty("head -n 1 </dev/tty; true"), process.InputCertain},
		{"a password prompt", tty("stty -echo; printf 'Password: '; read x"), process.InputPassword},
		{"a password read from /dev/tty", tty("stty -echo; head -n 1 </dev/tty; true"), process.InputPassword},
		{"a terminal in raw mode", tty("stty raw -echo; head -c 1; true"), process.InputCertain},
		{"poll on the pipe", self(t, "poll"), process.InputLikely},
		{"poll on a terminal", onTTY(self(t, "poll")), process.InputLikely},
		{"select on the pipe", self(t, "select"), process.InputLikely},
		{"epoll on a terminal", onTTY(self(t, "epoll")), process.InputLikely},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := startSpec(t, tt.spec)
			if res := wait(t, p, process.Until{Input: true}); !res.Met || res.Input != tt.want {
				t.Errorf("got %+v; want %v", res, tt.want)
			}
		})
	}
}

func TestInputIsNoneWhereNobodyReadsIt(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"echo ready; exec sleep 1000",
		"echo ready; sleep 1000 | cat",                  // reads another pipe than ours
		"exec 0</dev/null; echo ready; exec sleep 1000", // gave its stdin up
	} {
		p := start(t, line)
		wait(t, p, process.Until{Match: "ready"})
		if got, err := observe.Input(pid(t, p), 0); got != process.InputNone || err != nil {
			t.Errorf("%s: got %v, %v; want none", line, got, err)
		}
	}
}

func TestWaitForAPort(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"listen", "listen elsewhere"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startSpec(t, self(t, name))
			res := wait(t, p, process.Until{Match: `port \d+$`})
			if !res.Met {
				t.Fatalf("it ended: %v", res.Exit)
			}
			port := proctest.Value(strconv.Atoi(res.Match[len("port "):]))(t)
			res = wait(t, p, process.Until{Port: port})
			if !res.Met || len(res.Listening) != 1 {
				t.Fatalf("got %+v; want one listener", res)
			}
			if a, err := netip.ParseAddrPort(res.Listening[0].Address); err != nil || int(a.Port()) != port {
				t.Errorf("got the address %q, %v; want port %d", res.Listening[0].Address, err, port)
			}
			if name == "listen" && res.Listening[0].PID != pid(t, p) {
				t.Errorf("pid %d listens; want %d", res.Listening[0].PID, pid(t, p))
			}
		})
	}
}

func TestTreeHoldsSessionsOfItsDescendants(t *testing.T) {
	t.Parallel()
	p := start(t, "setsid sleep 1000 & sleep 1000 & echo $!; echo ready; wait")
	wait(t, p, process.Until{Match: "ready"})
	leader := pid(t, p)
	tree := observe.Tree(leader, 0)
	if len(tree) != 3 || tree[0] != leader {
		t.Errorf("got %v; want %d and two more", tree, leader)
	}
	proctest.Value(p.Kill(t.Context()))(t)
	if tree := observe.Tree(leader, 0); len(tree) != 0 {
		t.Errorf("%v are left after the kill", tree)
	}
}
