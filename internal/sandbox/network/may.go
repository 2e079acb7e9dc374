package network

import (
	"fmt"
	"net/netip"
)

// May reports why a connection that the daemon makes for a caller who is not its owner may not
// lead to an address; nil: it may. The rule is that of sandboxes: neither this machine nor a
// metadata service, and nothing that the operator denies.
func (h *Host) May(to netip.AddrPort) error {
	if h.reachable(to) {
		return nil
	}
	return fmt.Errorf("%s is no address that a sandbox may reach (tend serve --sandbox-deny, --sandbox-reach)", to)
}
