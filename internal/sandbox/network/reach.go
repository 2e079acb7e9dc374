package network

import (
	"net/netip"
	"slices"
)

// Addresses of each sandbox's own network.
const (
	own4 = "192.0.0.2"
	own6 = "fd74:656e:6400::2"
	// Gateway is the machine's own loopback, for what [Config].Reach names there.
	Gateway = "192.0.0.1"
	// GatewayName is looked up as Gateway.
	GatewayName = "host.tend.internal"

	// proxyPort is the port inside at which the server takes what leaves. It is one that
	// no program wants.
	proxyPort = 1
)

var (
	gateway     = netip.MustParseAddr(Gateway)
	thisMachine = netip.MustParseAddr("127.0.0.1")
)

// never are destinations that no sandbox reaches, whatever its rules are: the machine
// itself, its own links, groups of machines, and where clouds hand out credentials. What
// more belongs to this machine, its routes say.
var never = prefixes(
	"0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128", // this machine
	"169.254.0.0/16", "fe80::/10", "fec0::/10", // its links, with the metadata of most clouds
	"224.0.0.0/4", "240.0.0.0/4", "ff00::/8", // groups
	"192.0.0.0/24",                           // sandboxes' own network, and others' metadata
	"100.100.100.200/32", "168.63.129.16/32", // metadata of clouds
	"fd00:ec2::/32", "fd20:ce::254/128",
	"fd74:656e:6400::/48", // as 192.0.0.0/24
)

// private are the addresses that networks have for themselves.
var private = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func in(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// forms are the addresses that an address leads to: itself, and an IPv4 address that it
// holds and that gateways take out of it (NAT64, 6to4, IPv4-compatible).
func forms(a netip.Addr) []netip.Addr {
	a = a.Unmap().WithZone("")
	out := []netip.Addr{a}
	if !a.Is6() {
		return out
	}
	b := a.As16()
	v4 := func(at int) { out = append(out, netip.AddrFrom4([4]byte(b[at:at+4]))) }
	switch {
	case in(nat64, a), in(compatible, a):
		v4(12)
	case in(sixToFour, a):
		v4(2)
	}
	return out
}

var (
	nat64      = prefixes("64:ff9b::/96", "64:ff9b:1::/48")
	compatible = prefixes("::/96", "::ffff:0:0:0/96")
	sixToFour  = prefixes("2002::/16")
)

// outside is where a destination that a program names is for this machine.
func outside(to netip.AddrPort) netip.AddrPort {
	if to.Addr() == gateway {
		return netip.AddrPortFrom(thisMachine, to.Port())
	}
	return to
}

// reachable reports whether any sandbox may reach a destination, as it is for this
// machine.
func (h *Host) reachable(to netip.AddrPort) bool {
	if h.isOwn(to) {
		return false
	}
	if slices.ContainsFunc(h.cfg.Reach, func(r Rule) bool { return r.isExact() && r.matchesAddr(to) }) {
		return true
	}
	for i, a := range forms(to.Addr()) {
		if in(never, a) {
			return false
		}
		at := netip.AddrPortFrom(a, to.Port())
		matches := func(r Rule) bool { return r.matchesAddr(at) }
		if slices.ContainsFunc(h.cfg.Deny, matches) && !slices.ContainsFunc(h.cfg.Reach, matches) {
			return false
		}
		switch h.cfg.Outside.route(a) {
		case routeElsewhere:
		case routeNone:
			if i == 0 { // what an address holds need not have a route from here
				return false
			}
		default:
			return false
		}
	}
	return true
}

// isOwn reports whether a destination is a port of the daemon itself. It trusts who calls
// from this machine, as the server would for a sandbox.
func (h *Host) isOwn(to netip.AddrPort) bool {
	return slices.Contains(h.cfg.Own, to.Port()) && slices.ContainsFunc(forms(to.Addr()), func(a netip.Addr) bool {
		return h.cfg.Outside.route(a) == routeHere
	})
}

// route is where an address leads.
type route int

const (
	routeNone      route = iota
	routeElsewhere       // to another machine
	routeHere            // to this one, or to several
)
