package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/netns"
)

// loopback is the index of lo, which each namespace begins with.
const loopback = 1

// Loopback makes the loopback of a new namespace usable.
func (s *Space) Loopback() error {
	entered := false
	err := s.Do(func() error {
		entered = true
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return loopbackUp(h)
	})
	if !entered && errors.Is(err, unix.EPERM) {
		return s.loopbackFromHere()
	}
	return err
}

// errMachines: what is done to a sandbox's network would end this machine's.
var errMachines = errors.New("this is the network of the machine, and none of a sandbox")

// isMachines reports whether the namespace is the process's own, or that of the machine's
// first process.
func (s *Space) isMachines() (bool, error) {
	if s == nil || s.ns == nil {
		return true, nil
	}
	here, err := s.ns.Stat()
	if err != nil {
		return false, err
	}
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		fi, err := os.Stat(path)
		if err == nil && os.SameFile(here, fi) {
			return true, nil
		}
		if err != nil && path == "/proc/self/ns/net" { // the other one may not be ours to see
			return false, err
		}
	}
	return false, nil
}

func loopbackUp(h *netlink.Handle) error {
	lo := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: loopback}}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// configure sends all that leaves the namespace to the port of the proxy. It may be
// repeated.
func (s *Space) configure(v6 bool) error {
	if own, err := s.isMachines(); err != nil || own {
		return errors.Join(errMachines, err)
	}
	entered := false
	err := s.Do(func() error {
		entered = true
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		if err := loopbackUp(h); err != nil {
			return err
		}
		// The rules come first: without them, all addresses would be the sandbox's own.
		if err := rules(v6); err != nil {
			return fmt.Errorf("nf_tables with tproxy: %w", err)
		}
		if err := everywhere(h, netip.MustParseAddr(own4), unix.AF_INET); err != nil {
			return fmt.Errorf("route to the proxy: %w", err)
		}
		if v6 {
			if err := everywhere(h, netip.MustParseAddr(own6), unix.AF_INET6); err != nil {
				return fmt.Errorf("route to the proxy: %w", err)
			}
		}
		return nil
	})
	if !entered && errors.Is(err, unix.EPERM) {
		return s.configureFromHere(v6)
	}
	return err
}

// everywhere gives lo an address, and makes all others local.
func everywhere(h *netlink.Handle, own netip.Addr, family int) error {
	lo := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: loopback}}
	ip := net.IP(own.AsSlice())
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(own.BitLen(), own.BitLen())}, Flags: unix.IFA_F_NODAD}
	if err := h.AddrReplace(lo, addr); err != nil {
		return err
	}
	all := &net.IPNet{IP: make(net.IP, own.BitLen()/8), Mask: make(net.IPMask, own.BitLen()/8)}
	err := h.RouteAdd(&netlink.Route{
		LinkIndex: loopback, Dst: all, Src: ip, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: unix.RT_TABLE_MAIN, Family: family,
	})
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// Names of the table. It is made in one step, so where one is, its rules are: a change of
// the rules needs another name.
const (
	table4 = "tend-1"
	table6 = "tend-1-ipv6" // with rules for both
)

// rules makes the table, unless it is there, and removes others. To remove one takes the
// kernel 20 ms, so it is not done where there is none.
func rules(v6 bool, how ...nftables.ConnOption) error {
	name := table4
	if v6 {
		name = table6
	}
	c, err := nftables.New(how...)
	if err != nil {
		return err
	}
	there, err := c.ListTables()
	if err != nil {
		return err
	}
	found := false
	for _, t := range there {
		if t.Name == name && t.Family == nftables.TableFamilyINet {
			found = true
		} else {
			c.DelTable(t)
		}
	}
	if found {
		return c.Flush()
	}
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: name}
	c.AddTable(t)
	chain := c.AddChain(&nftables.Chain{
		Name: "out", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	r := ruleset{c, t, chain}
	r.family(unix.NFPROTO_IPV4, 16, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParseAddr(own4))
	if v6 {
		r.family(unix.NFPROTO_IPV6, 24, netip.MustParsePrefix("::1/128"), netip.MustParseAddr(own6))
	}
	return c.Flush()
}

type ruleset struct {
	c     *nftables.Conn
	table *nftables.Table
	chain *nftables.Chain
}

// family adds the rules of one: questions to a resolver on the loopback, where many
// systems have theirs, and all that is for nobody inside, go to the proxy. What is neither
// TCP nor UDP goes nowhere: without a rule, every address would answer a ping.
func (r ruleset) family(proto byte, offset uint32, loop netip.Prefix, own netip.Addr) {
	daddr := func(p netip.Prefix) []expr.Any {
		n := uint32(p.Addr().BitLen() / 8)
		if !p.IsSingleIP() {
			n = uint32(p.Bits() / 8)
		}
		return []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: n},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Addr().AsSlice()[:n]},
		}
	}
	l4 := func(p byte) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{p}}}
	}
	dns := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(53)},
	}
	take := []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(proxyPort)},
		&expr.TProxy{Family: proto, TableFamily: byte(nftables.TableFamilyINet), RegPort: 1},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	drop := []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	add := func(parts ...[]expr.Any) {
		all := []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}}}
		for _, p := range parts {
			all = append(all, p...)
		}
		r.c.AddRule(&nftables.Rule{Table: r.table, Chain: r.chain, Exprs: all})
	}
	add(daddr(loop), l4(unix.IPPROTO_UDP), dns, take)
	add(daddr(loop), l4(unix.IPPROTO_TCP), dns, take)
	add(daddr(loop), accept)
	add(daddr(netip.PrefixFrom(own, own.BitLen())), accept)
	add(l4(unix.IPPROTO_TCP), take)
	add(l4(unix.IPPROTO_UDP), take)
	add(drop)
}

// route asks the kernel where an address leads.
func (s *Space) route(a netip.Addr) (to route) {
	_ = s.Do(func() error { // what there is no route to is an error
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		routes, err := h.RouteGet(net.IP(a.AsSlice()))
		if err != nil {
			return err
		}
		for _, r := range routes {
			if to = routeElsewhere; r.Type != unix.RTN_UNICAST {
				to = routeHere
				return nil
			}
		}
		return nil
	})
	return to
}

// hasIPv6 reports whether this machine has an address that others know, to reach them
// from.
func (s *Space) hasIPv6() bool {
	c, err := s.DialUDP(netip.MustParseAddrPort("[2001:4860:4860::8888]:53")) // nothing is sent
	if err != nil {
		return false
	}
	defer c.Close()
	from, ok := c.LocalAddr().(*net.UDPAddr)
	return ok && netip.MustParsePrefix("2000::/3").Contains(from.AddrPort().Addr())
}

// scratch returns a new namespace.
func scratch() (*Space, error) {
	f, err := netns.New()
	if err != nil {
		return nil, err
	}
	return &Space{f}, nil
}

// probe says why a namespace cannot have a way out here.
func probe() error {
	s, err := scratch()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.configure(false); err != nil {
		return err
	}
	tcp, udp, err := s.listen(netip.AddrPortFrom(netip.IPv4Unspecified(), proxyPort))
	if err != nil {
		return err
	}
	return errors.Join(tcp.Close(), udp.Close())
}
