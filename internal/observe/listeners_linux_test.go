package observe

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// listen makes a listener, of IPv6 alone if the network says so.
func listen(t testing.TB, network, address string) netip.AddrPort {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if network != "tcp6" {
			return nil
		}
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1) })
		if cerr != nil {
			return cerr
		}
		return err
	}}
	l := proctest.Value(lc.Listen(context.Background(), network, address))(t)
	t.Cleanup(func() { l.Close() })
	return proctest.Value(netip.ParseAddrPort(l.Addr().String()))(t)
}

func TestNetlinkAndProcTellTheSameListeners(t *testing.T) {
	proctest.Root(t) // to enter a namespace
	own := proctest.Value(os.Readlink("/proc/self/ns/net"))(t)
	for _, at := range []struct{ network, address string }{
		{"tcp4", "127.0.0.1:0"}, {"tcp4", "0.0.0.0:0"}, {"tcp6", "[::1]:0"}, {"tcp6", "[::]:0"}, {"tcp", "[::]:0"},
	} {
		port := listen(t, at.network, at.address).Port()
		asked := proctest.Value(ask(os.Getpid(), own, port))(t)
		entered := proctest.Value(ask(os.Getpid(), "another namespace", port))(t)
		read := inTables(os.Getpid(), port)
		if len(asked) != 1 || !slices.Equal(asked, read) || !slices.Equal(asked, entered) {
			t.Errorf("%v: netlink says %v, and %v by the namespace's file; /proc says %v", at, asked, entered, read)
		}
		if all := proctest.Value(ask(os.Getpid(), own, 0))(t); !slices.Contains(all, asked[0]) {
			t.Errorf("%v is not among all: %v", at, all)
		}
	}
}

// inherit starts a shell that runs the line with a listener as descriptor 3, and returns
// when it has written.
func inherit(t *testing.T, line string) (leader int, at netip.AddrPort) {
	t.Helper()
	l := proctest.Value(net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer l.Close()
	f := proctest.Value(l.File())(t)
	defer f.Close()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out := proctest.Value(cmd.StdoutPipe())(t)
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	proctest.Value(out.Read(make([]byte, 1)))(t)
	return cmd.Process.Pid, proctest.Value(netip.ParseAddrPort(l.Addr().String()))(t)
}

func TestWhoeverHoldsTheListenerOfTheTreeIsFound(t *testing.T) {
	other := listen(t, "tcp4", "127.0.0.1:0")
	nobody := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), other.Port())
	for name, line := range map[string]string{
		"the leader":         "echo; exec sleep 1000",
		"a child":            "{ echo; exec sleep 1000; } & exec 3<&-; wait",
		"a child of a child": "{ { echo; exec sleep 1000; } & exec 3<&-; wait; } & exec 3<&-; wait",
		"one of the session whose parent has died": "( { echo; exec sleep 1000; } & ) & exec 3<&-; wait; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			leader, at := inherit(t, line)
			if a, err := Answering(leader, 0, at); err != nil || !a.Listening || !a.Ours {
				t.Errorf("got %+v, %v; want one of its own", a, err)
			}
			if a, err := Answering(leader, 0, other); err != nil || !a.Listening || a.Ours || a.PID != os.Getpid() {
				t.Errorf("got %+v, %v; want one of this test", a, err)
			}
			if a, err := Answering(leader, 0, nobody); err != nil || a.Listening {
				t.Errorf("got %+v, %v; want none", a, err)
			}
		})
	}
}

func TestNobodyAnswersOfATreeThatIsGone(t *testing.T) {
	cmd := exec.Command("true")
	proctest.Must(t, cmd.Run())
	a, err := Answering(cmd.Process.Pid, 0, listen(t, "tcp4", "127.0.0.1:0"))
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("got %+v, %v; want an error with the pid", a, err)
	}
}

// BenchmarkAnswering: each answer to a probe of a service is followed by one.
func BenchmarkAnswering(b *testing.B) {
	at := listen(b, "tcp4", "127.0.0.1:0")
	for b.Loop() {
		if a, err := Answering(os.Getpid(), 0, at); err != nil || !a.Ours {
			b.Fatal(a, err)
		}
	}
}
