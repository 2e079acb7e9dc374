package network

import "net"

// leaving is a connection to the outside whose bytes are counted: by the kernel, so that they
// still go from one connection to the other without a copy.
type leaving struct {
	*net.TCPConn
	p       *Proxy
	counted bool // it is part of the sums; guarded by Proxy.counting
}

// Close counts what has gone through, and closes the connection.
func (l *leaving) Close() error {
	l.p.counting.Lock()
	if !l.counted {
		l.counted = true
		received, sent := bytesOf(l.TCPConn)
		l.p.received, l.p.sent = l.p.received+received, l.p.sent+sent
	}
	l.p.counting.Unlock()
	return l.TCPConn.Close()
}

// leave has the bytes of a connection to the outside counted.
func (p *Proxy) leave(out net.Conn) net.Conn {
	if c, ok := out.(*net.TCPConn); ok {
		return &leaving{TCPConn: c, p: p}
	}
	return out
}

// moved counts datagrams.
func (p *Proxy) moved(received, sent int) {
	p.counting.Lock()
	defer p.counting.Unlock()
	p.received, p.sent = p.received+int64(received), p.sent+int64(sent)
}

// Bytes returns how many bytes have come from outside, and have gone there, since Open. Questions
// for names, which the proxy answers itself, are not among them.
func (p *Proxy) Bytes() (received, sent int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counting.Lock()
	defer p.counting.Unlock()
	received, sent = p.received, p.sent
	for c := range p.conns {
		if out, ok := c.outside.(*leaving); ok && !out.counted {
			r, s := bytesOf(out.TCPConn)
			received, sent = received+r, sent+s
		}
	}
	return received, sent
}
