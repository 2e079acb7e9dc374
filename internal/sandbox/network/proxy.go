package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/lib/netpipe"
)

const (
	// dialTime bounds how long a destination may take to answer.
	dialTime = 30 * time.Second
	// sniffTime is how long a program may take to say which host it wants, where that has
	// to be known.
	sniffTime = 10 * time.Second
)

// Proxy is the way out of one sandbox. Close ends it.
type Proxy struct {
	host   *Host
	space  *Space
	policy atomic.Pointer[Policy]
	names  names
	v6     bool

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // of all goroutines

	tcp []*net.TCPListener
	udp []*net.UDPConn

	mu    sync.Mutex
	over  bool               // guarded by mu
	conns map[*conn]struct{} // guarded by mu
	flows map[flowKey]*flow  // guarded by mu
	// replies are sockets with the addresses of resolvers that were asked; guarded by mu.
	replies    map[netip.AddrPort]*net.UDPConn
	pace, asks pace          // of connections and flows, and of questions; guarded by mu
	questions  chan struct{} // a place for each

	counting       sync.Mutex // after mu
	received, sent int64      // bytes of what has ended, and of datagrams; guarded by counting
}

// conn is a connection that leaves.
type conn struct {
	to      netip.AddrPort
	inside  *net.TCPConn
	names   []string // what it is allowed as; guarded by Proxy.mu
	outside net.Conn // guarded by Proxy.mu
}

// Open gives a namespace, which it takes over, a way out. It may have had one before,
// of a server that has ended or is about to.
func (h *Host) Open(space *Space, policy *Policy) (*Proxy, error) {
	if own, err := space.isMachines(); err != nil || own {
		return nil, errors.Join(errMachines, err, space.Close())
	}
	p := &Proxy{
		host: h, space: space, v6: h.hasIPv6(), conns: map[*conn]struct{}{}, flows: map[flowKey]*flow{},
		replies: map[netip.AddrPort]*net.UDPConn{}, questions: make(chan struct{}, maxQuestions),
	}
	p.policy.Store(policy)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	at := []netip.Addr{netip.IPv4Unspecified()}
	if p.v6 {
		at = append(at, netip.IPv6Unspecified())
	}
	for _, a := range at {
		tcp, udp, err := space.listen(netip.AddrPortFrom(a, proxyPort))
		if err != nil {
			p.Close()
			return nil, err
		}
		p.tcp, p.udp = append(p.tcp, tcp), append(p.udp, udp)
	}
	if err := space.configure(p.v6); err != nil {
		p.Close()
		return nil, err
	}
	for i := range p.tcp {
		p.spawn(func() { p.accept(p.tcp[i]) })
		p.spawn(func() { p.receive(p.udp[i]) })
	}
	return p, nil
}

// Close cuts all connections and lets the namespace go.
func (p *Proxy) Close() error {
	p.cancel()
	p.mu.Lock()
	p.over = true
	for c := range p.conns {
		c.cut()
	}
	for _, f := range p.flows {
		f.close()
	}
	for _, c := range p.replies {
		c.Close()
	}
	p.mu.Unlock()
	for _, l := range p.tcp {
		l.Close()
	}
	for _, c := range p.udp {
		c.Close()
	}
	p.wg.Wait()
	return p.space.Close()
}

// SetPolicy changes the rules. Connections that they no longer allow are cut.
func (p *Proxy) SetPolicy(policy *Policy) {
	p.policy.Store(policy)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if !policy.permitsAny(c.to, c.names) {
			c.cut()
		}
	}
	for k, f := range p.flows {
		if !policy.permitsAny(k.to, p.names.of(k.to.Addr(), time.Now())) {
			f.close()
		}
	}
}

// spawn runs f, whose fault ends nothing but itself.
func (p *Proxy) spawn(f func()) {
	p.wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				p.host.log.Error("network of a sandbox panicked", "panic", v, "stack", string(debug.Stack()))
			}
		}()
		f()
	})
}

func (p *Proxy) accept(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		switch {
		case p.ctx.Err() != nil:
			if err == nil {
				reset(c)
			}
			return
		case err != nil: // no descriptors, maybe
			p.sleep(50 * time.Millisecond)
			continue
		}
		p.mu.Lock()
		wait := p.pace.reserve(time.Now())
		p.mu.Unlock()
		if p.sleep(wait); p.ctx.Err() != nil {
			reset(c)
			return
		}
		local, ok := c.LocalAddr().(*net.TCPAddr)
		if !ok {
			reset(c)
			continue
		}
		to := local.AddrPort()
		k := &conn{to: netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), inside: c}
		if !p.begin(k) {
			reset(c)
			continue
		}
		p.spawn(func() {
			defer p.end(k)
			p.serve(k)
		})
	}
}

func (p *Proxy) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
	}
}

func (p *Proxy) begin(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || len(p.conns) >= p.host.most || !p.host.acquire(len(p.conns)+len(p.flows)) {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) end(c *conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	p.host.give()
	c.inside.Close()
}

// cut ends a connection at once. Proxy.mu is held.
func (c *conn) cut() {
	reset(c.inside)
	if c.outside != nil {
		c.outside.Close()
	}
}

// reset closes a connection so that the other end sees an error.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // then it is closed in the usual way
	c.Close()
}

// serve connects a program to where it wants to go, if it may.
func (p *Proxy) serve(c *conn) {
	if c.to.Port() == 53 {
		p.answerStream(c.inside)
		return
	}
	if err := p.connect(c); err != nil {
		p.host.log.Debug("connection out of a sandbox", "to", c.to, "err", err)
		reset(c.inside)
	}
}

func (p *Proxy) connect(c *conn) error {
	if !p.host.reachable(outside(c.to)) {
		return errRefused
	}
	policy := p.policy.Load()
	allowed := p.known(c, p.names.of(c.to.Addr(), time.Now()))
	switch {
	case !policy.named() && allowed:
		out, err := p.dial(c, c.to)
		if err != nil {
			return err
		}
		defer out.Close()
		netpipe.Join(c.inside, out)
		return nil
	case !policy.named():
		return errRefused
	case allowed:
		return p.connectThenLook(c, policy)
	}
	return p.lookThenConnect(c, policy)
}

// dial connects to a destination that is allowed.
func (p *Proxy) dial(c *conn, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	defer cancel()
	out, err := p.host.cfg.Outside.Dial(ctx, outside(to))
	if err != nil {
		return nil, err
	}
	out = p.leave(out)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.outside = out
	if p.over || !p.policy.Load().permitsAny(c.to, c.names) { // the rules changed meanwhile
		out.Close()
		return nil, errRefused
	}
	return out, nil
}

// connectThenLook connects to an address that is allowed, and looks whether the host that
// the program names there is: many share an address. Where the other end speaks
// first, it does.
func (p *Proxy) connectThenLook(c *conn, policy *Policy) error {
	out, err := p.dial(c, c.to)
	if err != nil {
		return err
	}
	defer out.Close()
	back := p.hear(c, out)
	defer back.wait()
	o, err := sniff(&slowStart{Conn: c.inside, most: p.host.sniff})
	if err == nil && o.name != "" && !policy.permits(c.to, o.name) || err != nil && !isEnd(err) {
		out.Close()
		reset(c.inside)
		return errors.Join(errRefused, err)
	}
	if derr := c.inside.SetReadDeadline(time.Time{}); derr != nil {
		return derr
	}
	if o.name != "" && !p.known(c, []string{o.name}) { // the rules changed meanwhile
		out.Close()
		reset(c.inside)
		return errRefused
	}
	return p.ask(c, out, o, back)
}

// lookThenConnect lets the program say which host it wants. If that one is allowed, it is
// connected to an address of that host, whichever it asked for.
func (p *Proxy) lookThenConnect(c *conn, policy *Policy) error {
	if err := c.inside.SetReadDeadline(time.Now().Add(p.host.sniff)); err != nil {
		return err
	}
	o, err := sniff(c.inside)
	if err != nil {
		return err
	}
	name := o.name
	if name == "" || !policy.permits(c.to, name) {
		return errRefused
	}
	if err := c.inside.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	addrs, err := p.host.resolver.lookup(p.ctx, name, p.v6 && c.to.Addr().Is6())
	if err != nil {
		return err
	}
	if i := slices.Index(addrs, c.to.Addr()); i > 0 {
		addrs[0], addrs[i] = addrs[i], addrs[0]
	}
	p.known(c, []string{name}) // dial looks at the rules again
	err = errRefused
	for _, a := range addrs {
		to := netip.AddrPortFrom(a, c.to.Port())
		if !p.host.reachable(to) {
			continue
		}
		var out net.Conn
		if out, err = p.dial(c, to); err != nil {
			continue
		}
		defer out.Close()
		back := p.hear(c, out)
		defer back.wait()
		return p.ask(c, out, o, back)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// back is the direction from the other end to the program.
type back struct {
	wg     sync.WaitGroup
	change atomic.Pointer[string] // what the first answer may agree to; nil: nothing
	agrees chan bool              // whether it does; closed if it cannot any more
}

func (b *back) wait() { b.wg.Wait() }

// hear passes on what comes from outside.
func (p *Proxy) hear(c *conn, out net.Conn) *back {
	b := &back{agrees: make(chan bool, 1)}
	b.wg.Go(func() {
		defer close(b.agrees)
		from := bufio.NewReader(out)
		_, err := from.Peek(1)
		if change := b.change.Load(); err == nil && change != nil {
			var status string
			status, err = passAnswer(c.inside, from)
			b.agrees <- err == nil && strings.HasPrefix(status, *change)
		}
		if err == nil {
			rest, _ := from.Peek(from.Buffered())
			_, err = c.inside.Write(rest)
		}
		if err == nil || isEnd(err) {
			netpipe.Half(c.inside, out)
			return
		}
		c.inside.Close()
		out.Close()
	})
	return b
}

// ask passes on what the program says. Of HTTP/1 each request is looked at, until the server agrees
// to another protocol. Only the first may ask for one: its answer is the first thing that is heard.
func (p *Proxy) ask(c *conn, out net.Conn, o *opening, b *back) error {
	q, err := o.request, error(nil)
	if q == nil {
		err = passFirstLine(out, o.more)
	}
	for ; q != nil && err == nil; q, err = nextRequest(o.more) {
		if q.host != "" && !p.policy.Load().permits(c.to, q.host) {
			err = errRefused
			break
		}
		if q != o.request && !q.stay() {
			err = errRefused
			break
		}
		if q.change != "" {
			b.change.Store(&q.change)
		}
		if err = q.pass(out, o.more); err != nil || q.change != "" && <-b.agrees {
			break
		}
	}
	switch {
	case isEnd(err):
		closeWrite(out)
		return nil
	case err != nil:
		out.Close()
		reset(c.inside)
		return err
	}
	rest, _ := o.more.Peek(o.more.Buffered())
	if _, err := out.Write(rest); err != nil {
		return err
	}
	netpipe.Half(out, c.inside)
	return nil
}

// known notes the names of where a connection goes, and reports whether it may. Rules
// that come later find them.
func (p *Proxy) known(c *conn, names []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.names = names
	return p.policy.Load().permitsAny(c.to, names)
}

// slowStart lets the first byte take as long as it likes, and bounds what comes after it.
type slowStart struct {
	net.Conn
	most  time.Duration
	begun bool
}

func (s *slowStart) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if !s.begun && n > 0 {
		s.begun = true
		err = errors.Join(err, s.SetReadDeadline(time.Now().Add(s.most)))
	}
	return n, err
}

// isEnd reports whether a program said nothing more, as it may.
func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite() // the other end may be gone already
	}
}

// pace bounds how fast connections and flows begin.
type pace struct{ next time.Time }

// reserve returns how long to wait for the next one.
func (p *pace) reserve(now time.Time) time.Duration {
	const each = time.Second / perSecond
	if earliest := now.Add(-time.Second); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(each)
	return p.next.Sub(now)
}
