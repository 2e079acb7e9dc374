package config

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// maxPass bounds the conditions of a repair.
const maxPass = 8

// Pass is a condition of a repair.
type Pass struct {
	// Socket is the path of a Unix socket, Local an address on the loopback of where the service runs,
	// Remote one elsewhere: one of them.
	Socket, Remote string
	Local          netip.AddrPort
}

var passHost = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// PassOf reads an entry of healer.pass.
func PassOf(text string) (p Pass, err error) {
	if path.IsAbs(text) {
		if path.Clean(text) != text || text == "/" {
			return p, fmt.Errorf("is %.80q; an absolute path is wanted, without .. and not /", text)
		}
		return Pass{Socket: text}, nil
	}
	host, port, err := net.SplitHostPort(text)
	n, nerr := strconv.ParseUint(port, 10, 16)
	addr, aerr := netip.ParseAddr(host)
	switch {
	case err != nil || nerr != nil || n == 0 || aerr != nil && !passHost.MatchString(host) || addr.Zone() != "":
		return p, fmt.Errorf("is %.80q; HOST:PORT is wanted, or the absolute path of a Unix socket", text)
	case host == "localhost":
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case !addr.IsLoopback():
		return Pass{Remote: text}, nil
	}
	return Pass{Local: netip.AddrPortFrom(addr, uint16(n))}, nil
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
