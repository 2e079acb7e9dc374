package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestDialNeverReachesThisMachine is about what clients name for webhooks: by address in each
// form, and by names that lead elsewhere at first. It is not parallel: it is the resolver.
func TestDialNeverReachesThisMachine(t *testing.T) {
	l := proctest.Value(net.Listen("tcp", ":0"))(t)
	defer l.Close()
	var came atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	h := NewHost(Config{})
	hosts := []string{"127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "169.254.169.254",
		"fd00:ec2::254", "100.100.100.200", "10.0.0.1", "172.16.0.1", "192.168.1.1", "fc00::1", "fe80::1%lo", "224.0.0.1", "localhost", "rebind.example"}
	for _, a := range proctest.Value(net.InterfaceAddrs())(t) {
		hosts = append(hosts, a.(*net.IPNet).IP.String())
	}
	resolver := net.DefaultResolver
	defer func() { net.DefaultResolver = resolver }()
	var asked atomic.Int32
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go answerRebound(theirs, &asked)
		return ours, nil
	}}
	// What looked at the name before was told of another address.
	if as, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", "rebind.example"); err != nil || as[0].String() != "203.0.113.9" {
		t.Fatalf("the name leads to %v, %v", as, err)
	}
	for _, host := range hosts {
		c, err := h.Dial(t.Context(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			c.Close()
			t.Errorf("%s is connected to", host)
		} else if _, ok := errors.AsType[*RefusedError](err); !ok {
			t.Errorf("%s: %v", host, err)
		}
	}
	if came.Load() != 0 {
		t.Errorf("%d connections have come", came.Load())
	}

	// What the operator opens is open, but for the daemon's own.
	reach := proctest.Value(ParseReach([]string{"127.0.0.1:" + strconv.Itoa(port), "10.0.0.0/8"}))(t)
	h = NewHost(Config{Reach: reach})
	c := proctest.Value(h.Dial(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))))(t)
	c.Close()
	if err := h.Refuses(netip.MustParseAddrPort("127.0.0.1:1")); err == nil {
		t.Error("another port is open")
	}
	if err := NewHost(Config{Reach: reach, Own: []uint16{uint16(port)}}).Refuses(netip.AddrPortFrom(thisMachine, uint16(port))); err == nil {
		t.Error("a port of the daemon is opened")
	}
}

// answerRebound answers questions for addresses over a stream: at first with one of another
// machine, and then with this one's.
func answerRebound(c net.Conn, asked *atomic.Int32) {
	defer c.Close()
	for {
		head := make([]byte, 2)
		if _, err := c.Read(head); err != nil {
			return
		}
		text := make([]byte, int(head[0])<<8|int(head[1]))
		if _, err := c.Read(text); err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(text) != nil || len(m.Questions) != 1 {
			return
		}
		m.Response, m.Additionals = true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			a := [4]byte{127, 0, 0, 1}
			if asked.Add(1) == 1 {
				a = [4]byte{203, 0, 113, 9}
			}
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type},
				Body: &dnsmessage.AResource{A: a}}}
		}
		packed, err := m.Pack()
		if err != nil {
			return
		}
		if _, err := c.Write(append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...)); err != nil {
			return
		}
	}
}
