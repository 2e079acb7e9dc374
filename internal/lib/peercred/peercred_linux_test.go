package peercred

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/sockdiag"
	"github.com/tend-run/tend/internal/support/proctest"
)

// pair returns both ends of a connection to a listener on listen, made by the
// address dial.
func pair(t *testing.T, network, listen, dialNetwork string) (client, server *net.TCPConn) {
	t.Helper()
	l := proctest.Value(net.Listen(network, listen))(t)
	defer l.Close()
	c := proctest.Value(net.DialTimeout(dialNetwork, l.Addr().String(), 30*time.Second))(t)
	t.Cleanup(func() { c.Close() })
	s := proctest.Value(l.Accept())(t)
	t.Cleanup(func() { s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// ways are the two ways in which a socket is found.
var ways = map[string]func(ends) (sockdiag.Socket, error){"sock_diag": ask, "/proc/net": search}

func TestTheUserOfALoopbackConnection(t *testing.T) {
	for name, at := range map[string][3]string{
		"IPv4":                  {"tcp4", "127.0.0.1:0", "tcp4"},
		"IPv4, another address": {"tcp4", "127.9.8.7:0", "tcp4"},
		"IPv6":                  {"tcp6", "[::1]:0", "tcp6"},
	} {
		t.Run(name, func(t *testing.T) {
			_, server := pair(t, at[0], at[1], at[2])
			if uid, err := UID(server); err != nil || uid != os.Geteuid() {
				t.Fatalf("UID is %d, %v; want %d", uid, err, os.Geteuid())
			}
			e := proctest.Value(endsOf(server))(t)
			for way, find := range ways {
				if s, err := find(e); err != nil || s.UID != os.Geteuid() || s.Inode == 0 || !established(s.State) {
					t.Errorf("%s: %+v, %v", way, s, err)
				}
			}
		})
	}
}

// TestASocketOfIPv6ThatSpeaksIPv4 is found though it is in the table of IPv6.
func TestASocketOfIPv6ThatSpeaksIPv4(t *testing.T) {
	l := proctest.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer l.Close()
	fd := proctest.Value(unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	to := &unix.SockaddrInet6{Port: l.Addr().(*net.TCPAddr).Port}
	copy(to.Addr[:], net.IPv4(127, 0, 0, 1).To16())
	proctest.Must(t, unix.Connect(fd, to))
	server := proctest.Value(l.Accept())(t)
	defer server.Close()
	e := proctest.Value(endsOf(server))(t)
	for way, find := range ways {
		if s, err := find(e); err != nil || s.UID != os.Geteuid() || s.Inode == 0 {
			t.Errorf("%s: %+v, %v", way, s, err)
		}
	}
}

// TestAListenerOnBothFamilies: its connections of IPv4 have mapped addresses.
func TestAListenerOnBothFamilies(t *testing.T) {
	l := proctest.Value(net.Listen("tcp", "[::]:0"))(t)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "::1"} {
		c := proctest.Value(net.Dial("tcp", net.JoinHostPort(host, port)))(t)
		defer c.Close()
		s := proctest.Value(l.Accept())(t)
		defer s.Close()
		if uid, err := UID(s); err != nil || uid != os.Geteuid() {
			t.Errorf("%s: %d, %v", host, uid, err)
		}
	}
}

func TestAnotherUserIsToldAsSuch(t *testing.T) {
	proctest.Root(t)
	const nobody = 65534
	made := make(chan net.Conn)
	l := proctest.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(nobody); err != nil {
			t.Error(err)
		}
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Error(err)
		}
		made <- c
	}()
	s := proctest.Value(l.Accept())(t)
	defer s.Close()
	defer (<-made).Close()
	e := proctest.Value(endsOf(s))(t)
	for way, find := range ways {
		if found, err := find(e); err != nil || found.UID != nobody {
			t.Errorf("%s: %+v, %v", way, found, err)
		}
	}
	if uid, err := UID(s); err != nil || uid != nobody {
		t.Errorf("UID is %d, %v", uid, err)
	}
}

// TestAClosedPeerIsNobody: the kernel says of a socket that was closed that its
// user is root.
func TestAClosedPeerIsNobody(t *testing.T) {
	for name, end := range map[string]func(client, server *net.TCPConn){
		"closed":                 func(c, _ *net.TCPConn) { c.Close() },
		"closed with data":       func(c, _ *net.TCPConn) { c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); c.Close() },
		"closed before it reads": func(c, s *net.TCPConn) { s.Write([]byte("x")); c.Close() }, // a reset
		"reset":                  func(c, _ *net.TCPConn) { c.Write([]byte("x")); c.SetLinger(0); c.Close() },
		"closed by both": func(c, s *net.TCPConn) { // time wait
			c.Write([]byte("x"))
			c.CloseWrite()
			s.CloseWrite()
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t, "tcp4", "127.0.0.1:0", "tcp4")
			end(client, server)
			if uid, err := UID(server); !errors.Is(err, ErrUnknown) {
				t.Errorf("UID is %d, %v; want nobody", uid, err)
			}
		})
	}
}

// TestAPeerThatHalfClosed still waits for its answer.
func TestAPeerThatHalfClosed(t *testing.T) {
	client, server := pair(t, "tcp4", "127.0.0.1:0", "tcp4")
	proctest.Must(t, client.CloseWrite())
	if uid, err := UID(server); err != nil || uid != os.Geteuid() {
		t.Errorf("UID is %d, %v", uid, err)
	}
}

// TestAListenerIsNotTheConnection: the kernel answers with the listener on a
// port when it has no connection from there.
func TestAListenerIsNotTheConnection(t *testing.T) {
	l := proctest.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer l.Close()
	_, server := pair(t, "tcp4", "127.0.0.1:0", "tcp4")
	e := proctest.Value(endsOf(server))(t)
	e.local = l.Addr().(*net.TCPAddr).AddrPort()
	for way, find := range ways {
		if s, err := find(e); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %+v, %v", way, s, err)
		}
	}
}
