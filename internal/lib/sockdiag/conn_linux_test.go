package sockdiag

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func open(t *testing.T) *Conn {
	t.Helper()
	c := proctest.Value(Open())(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// listen makes a listener on a loopback address.
func listen(t *testing.T, address string) (*net.TCPListener, netip.AddrPort) {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", address))(t)
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener), l.Addr().(*net.TCPAddr).AddrPort()
}

// connect returns the ends of a connection to a listener, as the one who dialled sees them.
func connect(t *testing.T, l *net.TCPListener) (local, remote netip.AddrPort) {
	t.Helper()
	c := proctest.Value(net.DialTimeout("tcp", l.Addr().String(), 30*time.Second))(t)
	t.Cleanup(func() { c.Close() })
	s := proctest.Value(l.Accept())(t)
	t.Cleanup(func() { s.Close() })
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

func TestTheSocketWithTwoEndsIsFound(t *testing.T) {
	c := open(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, listening := listen(t, address)
		local, remote := connect(t, l)
		s, err := c.Find(local, remote)
		if err != nil || s.Local != local || s.Remote != remote || s.State != unix.BPF_TCP_ESTABLISHED || s.UID != os.Geteuid() || s.Inode == 0 {
			t.Errorf("%s: %+v, %v", address, s, err)
		}
		// The kernel answers with the listener on a port when it has no connection from there.
		if s, err := c.Find(listening, netip.AddrPortFrom(local.Addr(), 1)); !errors.Is(err, ErrNone) {
			t.Errorf("%s: the listener is taken for %+v, %v", address, s, err)
		}
		if s, err := c.Find(netip.AddrPortFrom(local.Addr(), 1), netip.AddrPortFrom(local.Addr(), 1)); !errors.Is(err, ErrNone) {
			t.Errorf("%s: nobody is %+v, %v", address, s, err)
		}
		// None is an answer, too: the connection is still of use.
		if _, err := c.Find(local, remote); err != nil {
			t.Errorf("%s: after none: %v", address, err)
		}
	}
}

func TestListenersOfOnePortAndOfAll(t *testing.T) {
	c := open(t)
	l, v4 := listen(t, "127.0.0.1:0")
	_, v6 := listen(t, "[::1]:0")
	connect(t, l) // which is none
	for _, want := range []netip.AddrPort{v4, v6} {
		got, err := c.Listening(want.Port())
		got = slices.DeleteFunc(got, func(s Socket) bool { return s.Local.Addr() != want.Addr() })
		if err != nil || len(got) != 1 || got[0].Local != want || got[0].State != Listen || got[0].UID != os.Geteuid() || got[0].Inode == 0 {
			t.Errorf("%v: %+v, %v", want, got, err)
		}
		all := proctest.Value(c.Listening(0))(t)
		if len(got) == 1 && !slices.Contains(all, got[0]) {
			t.Errorf("%v is not among all: %v", want, all)
		}
	}
}

// More than fit into one part of the kernel's answer.
func TestAllOfManyListenersAreFound(t *testing.T) {
	ports := map[uint16]bool{}
	for range 300 {
		_, a := listen(t, "127.0.0.1:0")
		ports[a.Port()] = true
	}
	for _, s := range proctest.Value(open(t).Listening(0))(t) {
		delete(ports, s.Local.Port())
	}
	if len(ports) > 0 {
		t.Errorf("%d of 300 are missing", len(ports))
	}
}

func TestAnAnswerThatDoesNotFitIsNone(t *testing.T) {
	l, _ := listen(t, "127.0.0.1:0")
	local, remote := connect(t, l)
	c := open(t)
	proctest.Must(t, c.ask(question{family: unix.AF_INET, states: ^uint32(0), local: local, remote: remote}))
	if b, err := c.receive(make([]byte, unix.SizeofNlMsghdr+sizeSocket)); !errors.Is(err, errPart) { // the attributes are cut off
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestAnotherProcessIsNotTheKernel: root may send to the connection whatever it likes.
func TestAnotherProcessIsNotTheKernel(t *testing.T) {
	proctest.Root(t)
	l, _ := listen(t, "127.0.0.1:0")
	local, remote := connect(t, l)
	c, forger := open(t), open(t)
	proctest.Value(c.Find(local, remote))(t) // the kernel gives it an address
	forged := datagram(2, 0, socketMessage(local, remote, 4711))
	to := proctest.Value(unix.Getsockname(c.fd))(t)
	proctest.Must(t, unix.Sendto(forger.fd, forged, 0, to))
	if s, err := c.Find(local, remote); !errors.Is(err, errPart) {
		t.Errorf("a forged answer is taken for %+v, %v", s, err)
	}
}

func TestTheAnswerToAnotherQuestionIsNone(t *testing.T) {
	l, _ := listen(t, "127.0.0.1:0")
	local, remote := connect(t, l)
	c := open(t)
	proctest.Must(t, c.ask(question{family: unix.AF_INET, states: ^uint32(0), local: local, remote: remote}))
	if s, err := c.Find(local, remote); !errors.Is(err, errPart) { // it reads the answer to the first
		t.Errorf("got %+v, %v", s, err)
	}
}
