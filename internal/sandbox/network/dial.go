package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// RefusedError says that a client of the daemon may not have it connect to an address.
type RefusedError struct{ Addr netip.AddrPort }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%v is of this machine or of a network of its own, or denied; "+
		"--sandbox-reach opens single addresses and networks", e.Addr)
}

// Dial connects to a TCP address that a client of the daemon has named, as for a webhook: where
// a sandbox may go ([Config]), but to a private network only if Reach has it. Each address that a
// name leads to is looked at as it is connected to, so it does not matter what the name led to
// before. The error is a *RefusedError, or of the network.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return h.Refuses(to)
	}}
	return d.DialContext(ctx, network, address)
}

// Refuses returns a *RefusedError if Dial does not go to an address.
func (h *Host) Refuses(to netip.AddrPort) error {
	opened := func(a netip.Addr) bool {
		return slices.ContainsFunc(h.cfg.Reach, func(r Rule) bool { return r.matchesAddr(netip.AddrPortFrom(a, to.Port())) })
	}
	for _, a := range forms(to.Addr()) {
		if in(private, a) && !opened(a) {
			return &RefusedError{to}
		}
	}
	if !h.reachable(netip.AddrPortFrom(to.Addr().Unmap(), to.Port())) {
		return &RefusedError{to}
	}
	return nil
}
