package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// opened are the addresses of all sockets that a launcher would hold.
func opened(t *testing.T, listen ...string) (all []netip.AddrPort, err error) {
	t.Helper()
	fds, err := open(Config{StateDir: t.TempDir(), Listen: listen})
	for _, fd := range fds {
		t.Cleanup(func() { unix.Close(fd) })
		a, ok := addrOf(fd)
		if !ok {
			t.Errorf("a socket has no address")
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != 0 {
			t.Errorf("the socket of %s ends with the program that is executed: %v", a, err)
		}
		all = append(all, a)
	}
	return all, err
}

func TestAPortIsKeptOnTheOtherLoopbackAddress(t *testing.T) {
	four, six := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	for _, tt := range []struct {
		listen string
		other  netip.Addr
	}{{"127.0.0.1:0", six}, {"[::1]:0", four}} {
		t.Run(tt.listen, func(t *testing.T) {
			all := proctest.Value(opened(t, tt.listen))(t)
			if len(all) != 2 || all[1] != netip.AddrPortFrom(tt.other, all[0].Port()) {
				t.Fatalf("the sockets are of %v", all)
			}
			if l, err := net.Listen("tcp", all[1].String()); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("another one can listen there, too: %v, %v", l, err)
			}
			if c, err := net.Dial("tcp", all[1].String()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a connection there: %v, %v", c, err)
			}
		})
	}
	t.Run("all addresses are served", func(t *testing.T) {
		if all := proctest.Value(opened(t, "0.0.0.0:0"))(t); len(all) != 1 || all[0].Addr() != netip.IPv6Unspecified() {
			t.Errorf("the sockets are of %v", all)
		}
	})
	t.Run("both are served", func(t *testing.T) {
		all := proctest.Value(opened(t, "127.0.0.1:0"))(t)
		port := netip.AddrPortFrom(six, all[0].Port()).String()
		if _, err := opened(t, port); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("what another daemon keeps is served: %v", err)
		}
		at := netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t)))
		both := proctest.Value(opened(t, at.String(), netip.AddrPortFrom(six, at.Port()).String()))(t)
		if len(both) != 2 {
			t.Errorf("the sockets are of %v", both)
		}
	})
	t.Run("another program has it", func(t *testing.T) {
		theirs := proctest.Value(net.Listen("tcp", "[::1]:0"))(t)
		defer theirs.Close()
		at := netip.AddrPortFrom(four, netip.MustParseAddrPort(theirs.Addr().String()).Port())
		if _, err := opened(t, at.String()); err == nil || !strings.Contains(err.Error(), theirs.Addr().String()) {
			t.Errorf("it is served beside it: %v", err)
		}
	})
}

// The mode is not set by the path: in a directory of another user something else may lie there
// by then.
func TestASocketIsPrivateFromItsFirstMoment(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "sock")
	fd := proctest.Value(listenAt("unix:" + path))(t)
	defer unix.Close(fd)
	if fi := proctest.Value(os.Stat(path))(t); fi.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("its mode is %v", fi.Mode())
	}
}
