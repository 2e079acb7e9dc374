package peercred

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/lib/sockdiag"
)

// asker is the connection to the kernel over which all questions go: to make one for each
// connection costs more than the question.
var asker struct {
	sync.Mutex
	conn *sockdiag.Conn // nil: none
}

// ask finds the socket by its addresses. An answer about another one, such as a listener
// on the port, is none.
func ask(e ends) (s sockdiag.Socket, err error) {
	asker.Lock()
	defer asker.Unlock()
	if asker.conn == nil {
		if asker.conn, err = sockdiag.Open(); err != nil {
			return s, err
		}
	}
	s, err = asker.conn.Find(e.local, e.remote)
	switch {
	case errors.Is(err, sockdiag.ErrNone):
		return s, ErrUnknown
	case err != nil:
		asker.conn.Close()
		asker.conn = nil
	}
	return s, err
}

// search finds the socket in the tables of /proc/net. A socket of IPv6 may
// speak IPv4, so both tables are looked at.
func search(e ends) (s sockdiag.Socket, err error) {
	for _, path := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(path, "6") {
			continue // a kernel without IPv6
		}
		if err != nil {
			return s, fmt.Errorf("find the user of a connection: %w", err)
		}
		s, err = searchTable(f, e)
		f.Close()
		if !errors.Is(err, ErrUnknown) {
			return s, err
		}
	}
	return s, ErrUnknown
}

func searchTable(r io.Reader, e ends) (sockdiag.Socket, error) {
	unmapped := func(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
	for s, err := range sockdiag.Table(r) {
		if err != nil {
			return s, fmt.Errorf("find the user of a connection: %w", err)
		}
		if unmapped(s.Local) == e.local && unmapped(s.Remote) == e.remote {
			return s, nil
		}
	}
	return sockdiag.Socket{}, ErrUnknown
}
