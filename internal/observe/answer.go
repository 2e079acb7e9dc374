package observe

import (
	"fmt"
	"net/netip"

	"github.com/tend-run/tend/internal/lib/sockdiag"
)

// Answerer says whose sockets get the connections to an address.
type Answerer struct {
	// Listening: somebody listens there.
	Listening bool
	// Ours: all of these sockets are held by the tree that was asked for.
	Ours bool
	// PID and Name are of a process outside of the tree that holds one, if it could be
	// found; 0 and "" otherwise.
	PID  int
	Name string
}

// String completes "the port …".
func (a Answerer) String() string {
	switch {
	case !a.Listening:
		return "has no listener"
	case a.Ours:
		return "is the service's own"
	case a.PID != 0:
		return fmt.Sprintf("belongs to another process: %s (pid %d)", a.Name, a.PID)
	}
	return "belongs to a process that is not of the service"
}

// best returns those of the listeners that get a connection to an address: the kernel
// prefers a socket that is bound to the address to one that is bound to all, and for
// IPv4 one of IPv4 to one of IPv6. Several that are equal share the connections
// (SO_REUSEPORT).
func best(all []sockdiag.Socket, to netip.AddrPort) (chosen []sockdiag.Socket) {
	top := 0
	for _, s := range all {
		rank := 0
		switch a := s.Local.Addr(); {
		case s.Local.Port() != to.Port():
			continue
		case a.Unmap() == to.Addr().Unmap():
			rank = 4
			if a.Is4() != to.Addr().Unmap().Is4() {
				rank = 3 // the same by a mapped address
			}
		case !a.IsUnspecified():
			continue
		case a.Is4() && to.Addr().Unmap().Is4():
			rank = 2
		case a.Is6():
			rank = 1
		default:
			continue
		}
		if rank > top {
			top, chosen = rank, nil
		}
		if rank == top {
			chosen = append(chosen, s)
		}
	}
	return chosen
}
