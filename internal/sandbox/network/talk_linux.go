package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	nfl "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/netns"
)

// A server of an ordinary user may not enter the network of a sandbox. It owns it all the
// same: it configures it by sockets that a child made there. The libraries make their own
// sockets, so here their messages go over others.

// talk is a netlink socket in a namespace.
type talk struct{ fd int }

// talkID is the socket's address in its namespace, where the kernel alone listens: the
// library of nftables gives it to its messages.
const talkID = 1

func (s *Space) talk(protocol int) (*talk, error) {
	fd, err := netns.Socket(s.ns, unix.AF_NETLINK, unix.SOCK_RAW, protocol)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: talkID})),
		os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})))
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &talk{fd: fd}, nil
}

func (t *talk) close() { unix.Close(t.fd) }

func (t *talk) send(b []byte) error {
	return os.NewSyscallError("sendto", eintr.Do(func() error {
		return unix.Sendto(t.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}))
}

func (t *talk) receive() ([]byte, error) {
	b := make([]byte, 64<<10)
	n, err := eintr.Get(func() (int, error) {
		n, _, err := unix.Recvfrom(t.fd, b, 0)
		return n, err
	})
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	return b[:n], nil
}

// ask sends a request of rtnetlink, and returns what the kernel says to it.
func (t *talk) ask(kind, flags int, parts ...nl.NetlinkRequestData) error {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	for _, p := range parts {
		req.AddData(p)
	}
	if err := t.send(req.Serialize()); err != nil {
		return err
	}
	b, err := t.receive()
	if err != nil {
		return err
	}
	if len(b) < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return errors.New("rtnetlink: the answer is not understood")
	}
	if errno := -int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// forward is the kernel's end of a connection of package nftables: without messages, it is
// asked for an answer.
func (t *talk) forward(messages []nfl.Message) ([]nfl.Message, error) {
	if len(messages) > 0 {
		var all []byte
		for _, m := range messages {
			b, err := m.MarshalBinary()
			if err != nil {
				return nil, err
			}
			all = append(all, b...)
		}
		return nil, t.send(all)
	}
	b, err := t.receive()
	if err != nil {
		return nil, err
	}
	var answers []nfl.Message
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return nil, errors.New("nf_tables: the answer is not understood")
		}
		var m nfl.Message
		if err := m.UnmarshalBinary(b[:n]); err != nil {
			return nil, err
		}
		answers = append(answers, m)
		b = b[min((n+3)&^3, len(b)):]
	}
	return answers, nil
}

func (t *talk) loopbackUp() error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Flags, msg.Change = loopback, unix.IFF_UP, unix.IFF_UP
	if err := t.ask(unix.RTM_NEWLINK, 0, msg); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// everywhere is the function of this name.
func (t *talk) everywhere(own netip.Addr, family int) error {
	ip := own.AsSlice()
	addr := nl.NewIfAddrmsg(family)
	addr.Index, addr.Prefixlen = loopback, uint8(own.BitLen())
	flags := binary.NativeEndian.AppendUint32(nil, unix.IFA_F_NODAD)
	if err := t.ask(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, addr,
		nl.NewRtAttr(unix.IFA_LOCAL, ip), nl.NewRtAttr(unix.IFA_ADDRESS, ip), nl.NewRtAttr(unix.IFA_FLAGS, flags)); err != nil {
		return err
	}
	route := nl.NewRtMsg()
	route.Family, route.Type, route.Scope = uint8(family), unix.RTN_LOCAL, unix.RT_SCOPE_HOST
	err := t.ask(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, route,
		nl.NewRtAttr(unix.RTA_PREFSRC, ip), nl.NewRtAttr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopback)))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// loopbackFromHere is Loopback without entering the namespace.
func (s *Space) loopbackFromHere() error {
	t, err := s.talk(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer t.close()
	return t.loopbackUp()
}

// configureFromHere is configure without entering the namespace.
func (s *Space) configureFromHere(v6 bool) error {
	t, err := s.talk(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.loopbackUp(); err != nil {
		return err
	}
	nf, err := s.talk(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer nf.close()
	if err := rules(v6, nftables.WithTestDial(nf.forward)); err != nil {
		return fmt.Errorf("nf_tables with tproxy: %w", err)
	}
	err = t.everywhere(netip.MustParseAddr(own4), unix.AF_INET)
	if err == nil && v6 {
		err = t.everywhere(netip.MustParseAddr(own6), unix.AF_INET6)
	}
	if err != nil {
		return fmt.Errorf("route to the proxy: %w", err)
	}
	return nil
}
