package network

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

const (
	// askTime bounds a question to one server, and answerTime to all of them.
	askTime    = 2500 * time.Millisecond
	answerTime = 10 * time.Second
	// streamIdle bounds how long a TCP connection for questions waits for the next.
	streamIdle = 30 * time.Second
	// maxServers is how many of a resolv.conf are asked.
	maxServers = 3
	// gatewayTTL of GatewayName, in seconds.
	gatewayTTL = 60
)

// answer returns the answer to a question; nil: there is none.
func (p *Proxy) answer(msg []byte, stream bool) []byte {
	var parser dnsmessage.Parser
	head, err := parser.Start(msg)
	if err != nil || head.Response {
		return nil
	}
	q, err := parser.Question()
	if err != nil {
		return reply(head, nil, dnsmessage.RCodeFormatError, nil)
	}
	if _, err := parser.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) || head.OpCode != 0 {
		return reply(head, &q, dnsmessage.RCodeNotImplemented, nil)
	}
	policy := p.policy.Load()
	name, err := questionName(q.Name)
	plain := len(policy.Allow) == 0 && !policy.named()
	switch {
	case err != nil && !plain, err == nil && !policy.resolves(name), q.Type == dnsmessage.TypeAXFR, q.Type == 251: // 251: IXFR
		return reply(head, &q, dnsmessage.RCodeRefused, nil)
	case q.Type == dnsmessage.TypeAAAA && !p.v6:
		return reply(head, &q, dnsmessage.RCodeSuccess, nil) // there is no way to one
	case name == GatewayName:
		if q.Type != dnsmessage.TypeA {
			return reply(head, &q, dnsmessage.RCodeSuccess, nil)
		}
		p.names.add(gateway, name, gatewayTTL*time.Second, time.Now())
		return reply(head, &q, dnsmessage.RCodeSuccess, &dnsmessage.AResource{A: gateway.As4()})
	}
	ctx, cancel := context.WithTimeout(p.ctx, answerTime)
	defer cancel()
	out, err := p.host.resolver.exchange(ctx, msg, stream)
	if err != nil {
		return reply(head, &q, dnsmessage.RCodeServerFailure, nil)
	}
	if name == "" {
		return out
	}
	found, err := readAnswer(out)
	if err != nil {
		return reply(head, &q, dnsmessage.RCodeServerFailure, nil)
	}
	if len(policy.Allow) == 0 { // a name that is denied is so by another name, too
		for _, alias := range found.aliases {
			if !policy.resolves(alias) {
				return reply(head, &q, dnsmessage.RCodeRefused, nil)
			}
		}
	}
	for a, ttl := range found.addrs {
		p.names.add(a, name, ttl, time.Now())
	}
	return out
}

// questionName is a name in the form of hostName. A name that no host has is an error.
func questionName(n dnsmessage.Name) (string, error) {
	s := n.String()
	if strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) >= 0 {
		return "", errors.New("is not ASCII")
	}
	return hostName(s)
}

// reply is an answer of our own.
func reply(head dnsmessage.Header, q *dnsmessage.Question, code dnsmessage.RCode, a *dnsmessage.AResource) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired, RecursionAvailable: true, RCode: code,
	})
	err := b.StartQuestions()
	if q != nil {
		err = errors.Join(err, b.Question(*q))
	}
	if a != nil {
		err = errors.Join(err, b.StartAnswers(), b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: gatewayTTL}, *a))
	}
	out, ferr := b.Finish()
	if err != nil || ferr != nil {
		return nil
	}
	return out
}

// found is what an answer says.
type found struct {
	addrs   map[netip.Addr]time.Duration
	aliases []string
}

func readAnswer(msg []byte) (f found, err error) {
	var parser dnsmessage.Parser
	if _, err := parser.Start(msg); err != nil {
		return f, err
	}
	if err := parser.SkipAllQuestions(); err != nil {
		return f, err
	}
	f.addrs = map[netip.Addr]time.Duration{}
	for {
		h, err := parser.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		ttl := time.Duration(h.TTL) * time.Second
		switch h.Type {
		case dnsmessage.TypeA:
			r, err := parser.AResource()
			if err != nil {
				return f, err
			}
			f.addrs[netip.AddrFrom4(r.A)] = ttl
		case dnsmessage.TypeAAAA:
			r, err := parser.AAAAResource()
			if err != nil {
				return f, err
			}
			f.addrs[netip.AddrFrom16(r.AAAA)] = ttl
		case dnsmessage.TypeCNAME:
			r, err := parser.CNAMEResource()
			if err != nil {
				return f, err
			}
			if alias, err := questionName(r.CNAME); err == nil {
				f.aliases = append(f.aliases, alias)
			}
		default:
			if err := parser.SkipAnswer(); err != nil {
				return f, err
			}
		}
	}
}

// answerStream answers questions that come over TCP.
func (p *Proxy) answerStream(c net.Conn) {
	for {
		if c.SetDeadline(time.Now().Add(streamIdle)) != nil {
			return
		}
		msg, err := readMessage(c)
		if err != nil {
			return
		}
		answer := p.answer(msg, true)
		if answer == nil || writeMessage(c, answer) != nil {
			return
		}
	}
}

func readMessage(c net.Conn) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	msg := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(c, msg)
	return msg, err
}

func writeMessage(c net.Conn, msg []byte) error {
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err
}

// resolver asks the servers that the machine itself asks.
type resolver struct {
	path    string
	outside *Space

	mu      sync.Mutex
	seen    atomicfile.Seen // of the file that was read; guarded by mu
	servers []netip.Addr
}

// ask returns the servers. The file is read again when it has changed.
func (r *resolver) ask() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, err := atomicfile.Look(r.path)
	if err == nil && r.seen.Same(seen) {
		return r.servers
	}
	var servers []netip.Addr
	b, err := os.ReadFile(r.path)
	if err == nil {
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 2 || f[0] != "nameserver" || len(servers) == maxServers {
				continue
			}
			if a, err := netip.ParseAddr(f[1]); err == nil && a.Zone() == "" {
				servers = append(servers, a.Unmap())
			}
		}
	}
	if len(servers) == 0 { // as resolv.conf(5) has it
		servers = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	r.servers, r.seen = servers, seen
	return servers
}

// exchange asks one server after the other. The answer has the ID of msg.
func (r *resolver) exchange(ctx context.Context, msg []byte, stream bool) (out []byte, err error) {
	if len(msg) < 12 {
		return nil, io.ErrUnexpectedEOF
	}
	ours := append([]byte(nil), msg...)
	rand.Read(ours[:2])
	err = errors.New("no server")
	for range 2 {
		for _, s := range r.ask() {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if out, err = r.once(ctx, netip.AddrPortFrom(s, 53), ours, stream); err == nil {
				copy(out, msg[:2])
				return out, nil
			}
		}
	}
	return nil, err
}

// once asks one server.
func (r *resolver) once(ctx context.Context, server netip.AddrPort, msg []byte, stream bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var c net.Conn
	var err error
	if stream {
		c, err = r.outside.Dial(ctx, server)
	} else {
		c, err = r.outside.DialUDP(server)
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if stream {
		if err := writeMessage(c, msg); err != nil {
			return nil, err
		}
		out, err := readMessage(c)
		if err == nil && !answers(msg, out) {
			err = errors.New("an answer to another question")
		}
		return out, err
	}
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	buf := make([]byte, maxDatagram)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		if answers(msg, buf[:n]) { // else it is somebody else's, or made up
			return buf[:n], nil
		}
	}
}

// answers reports whether out is an answer to msg.
func answers(msg, out []byte) bool {
	if len(out) < 12 || out[0] != msg[0] || out[1] != msg[1] || out[2]&0x80 == 0 {
		return false
	}
	var a, b dnsmessage.Parser
	_, err := a.Start(msg)
	_, err2 := b.Start(out)
	if err != nil || err2 != nil {
		return false
	}
	q, err := a.Question()
	q2, err2 := b.Question()
	return err == nil && err2 == nil && q.Type == q2.Type && q.Class == q2.Class && strings.EqualFold(q.Name.String(), q2.Name.String())
}

// lookup returns the addresses of a name, in one family.
func (r *resolver) lookup(ctx context.Context, name string, v6 bool) (all []netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, err
	}
	q := dnsmessage.Question{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	if v6 {
		q.Type = dnsmessage.TypeAAAA
	}
	msg, err := (&dnsmessage.Message{Header: dnsmessage.Header{RecursionDesired: true}, Questions: []dnsmessage.Question{q}}).Pack()
	if err != nil {
		return nil, err
	}
	out, err := r.exchange(ctx, msg, false)
	if err != nil {
		return nil, err
	}
	f, err := readAnswer(out)
	for a := range f.addrs {
		all = append(all, a)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no address", name)
	}
	return all, err
}
