package network

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flowIdle is how long a flow lasts in which nothing moves.
	flowIdle = time.Minute
	// maxDatagram is the longest that is passed on, in bytes; a longer one is lost.
	maxDatagram = 16 << 10
	// maxReplies bounds the sockets that answer for resolvers.
	maxReplies = 16
)

// flowKey names datagrams between a program and a place.
type flowKey struct{ from, to netip.AddrPort }

// flow has a socket at each end. The one inside has the address of the place.
type flow struct {
	inside, outside *net.UDPConn
	moved           atomic.Int64 // unix nanoseconds
	once            sync.Once
}

func (f *flow) close() {
	f.once.Do(func() {
		f.inside.Close()
		f.outside.Close()
	})
}

// receive takes the first datagram of each flow, and questions for names. What cannot go on
// is lost, as datagrams are.
func (p *Proxy) receive(c *net.UDPConn) {
	buf, oob := make([]byte, maxDatagram+1), make([]byte, 256)
	for {
		n, on, _, from, err := c.ReadMsgUDPAddrPort(buf, oob)
		if p.ctx.Err() != nil {
			return
		}
		if err != nil {
			p.sleep(10 * time.Millisecond)
			continue
		}
		to, ok := destination(oob[:on])
		if !ok || n > maxDatagram {
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if to.Port() == 53 {
			p.question(flowKey{from, to}, buf[:n])
			continue
		}
		if f := p.flow(flowKey{from, to}); f != nil {
			p.moved(0, n)
			_, _ = f.outside.Write(buf[:n]) // lost, if it fails
		}
	}
}

// flow finds or makes one; nil: there can be none.
func (p *Proxy) flow(k flowKey) *flow {
	p.mu.Lock()
	f, has := p.flows[k], len(p.conns)+len(p.flows)
	room := f != nil || len(p.flows) < MaxFlows || p.makeRoom()
	wait := time.Duration(0)
	if f == nil && room {
		wait = p.pace.reserve(time.Now())
	}
	p.mu.Unlock()
	if f != nil || !room {
		return f
	}
	p.sleep(wait)
	if !p.host.reachable(outside(k.to)) || !p.policy.Load().permitsAny(k.to, p.names.of(k.to.Addr(), time.Now())) || !p.host.acquire(has) {
		return nil
	}
	out, err := p.host.cfg.Outside.DialUDP(outside(k.to))
	if err != nil {
		p.host.give()
		return nil
	}
	inside, err := p.space.udp(k.to, k.from)
	if err != nil {
		out.Close()
		p.host.give()
		return nil
	}
	f = &flow{inside: inside, outside: out}
	f.moved.Store(time.Now().UnixNano())
	p.mu.Lock()
	over := p.over || !p.policy.Load().permitsAny(k.to, p.names.of(k.to.Addr(), time.Now()))
	if !over {
		p.flows[k] = f
	}
	p.mu.Unlock()
	if over {
		f.close()
		p.host.give()
		return nil
	}
	p.spawn(func() {
		defer p.host.give()
		var wg sync.WaitGroup
		wg.Go(func() { f.move(f.outside, f.inside, func(n int) { p.moved(0, n) }) })
		f.move(f.inside, f.outside, func(n int) { p.moved(n, 0) })
		wg.Wait()
		p.mu.Lock()
		if p.flows[k] == f { // else it has made room for another one
			delete(p.flows, k)
		}
		p.mu.Unlock()
	})
	return f
}

// makeRoom ends the flow that has been idle for longest, if that was for some time. p.mu
// is held.
func (p *Proxy) makeRoom() bool {
	var oldest *flow
	var of flowKey
	for k, f := range p.flows {
		if oldest == nil || f.moved.Load() < oldest.moved.Load() {
			oldest, of = f, k
		}
	}
	if oldest == nil || time.Since(time.Unix(0, oldest.moved.Load())) < 5*time.Second {
		return false
	}
	delete(p.flows, of) // it takes a while to end, and makes room once
	oldest.close()
	return true
}

// move passes datagrams on until the flow is idle or an end is closed, and counts their bytes.
func (f *flow) move(to, from *net.UDPConn, count func(int)) {
	defer f.close()
	buf := make([]byte, maxDatagram+1)
	for {
		if from.SetReadDeadline(time.Now().Add(flowIdle)) != nil {
			return
		}
		n, err := from.Read(buf)
		if ne, ok := err.(net.Error); ok && ne.Timeout() && time.Since(time.Unix(0, f.moved.Load())) < flowIdle {
			continue // the other direction moves
		}
		if err != nil { // nobody is there, maybe
			return
		}
		f.moved.Store(time.Now().UnixNano())
		if n <= maxDatagram {
			count(n)
			_, _ = to.Write(buf[:n]) // lost, if it fails
		}
	}
}

// question answers a question for a name, if there are not too many.
func (p *Proxy) question(k flowKey, msg []byte) {
	p.mu.Lock()
	wait := p.asks.reserve(time.Now())
	p.mu.Unlock()
	p.sleep(wait)
	select {
	case p.questions <- struct{}{}:
	default:
		return
	}
	msg = append([]byte(nil), msg...)
	p.spawn(func() {
		defer func() { <-p.questions }()
		answer := p.answer(msg, false)
		if answer == nil {
			return
		}
		if c := p.reply(k.to); c != nil {
			_, _ = c.WriteToUDPAddrPort(answer, k.from) // lost, if it fails
		}
	})
}

// reply returns a socket with the address of a resolver.
func (p *Proxy) reply(as netip.AddrPort) *net.UDPConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.replies[as]; c != nil || p.over {
		return c
	}
	if len(p.replies) >= maxReplies {
		for k, c := range p.replies {
			c.Close()
			delete(p.replies, k)
		}
	}
	c, err := p.space.udp(as, netip.AddrPort{})
	if err != nil {
		return nil
	}
	p.replies[as] = c
	return c
}
