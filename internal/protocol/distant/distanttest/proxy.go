package distanttest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
)

// Proxy forwards connections to one address and cuts each after a random number
// of bytes from the server.
type Proxy struct {
	target   string
	from, to int64 // bytes, the range of the cuts

	mu    sync.Mutex
	rnd   *rand.Rand // guarded by mu
	cuts  int        // guarded by mu
	done  bool       // guarded by mu
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// NewProxy cuts after from to to bytes.
func NewProxy(target string, from, to int64, seed uint64) *Proxy {
	return &Proxy{target: target, from: from, to: to, rnd: rand.New(rand.NewPCG(seed, 0)), conns: map[net.Conn]bool{}}
}

// Cuts is the number of connections that were cut.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Dial returns a connection through the proxy.
func (p *Proxy) Dial() (net.Conn, error) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		server.Close()
		return nil, err
	}
	defer l.Close()
	outer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		server.Close()
		return nil, err
	}
	inner, err := l.Accept()
	if err != nil {
		server.Close()
		outer.Close()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	after := p.from
	if p.to > p.from {
		after += p.rnd.Int64N(p.to - p.from)
	}
	p.conns[server], p.conns[inner] = true, true
	if p.done {
		server.Close()
		inner.Close()
	}
	var once sync.Once
	end := func(cut bool) {
		once.Do(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if cut {
				p.cuts++
			}
			delete(p.conns, server)
			delete(p.conns, inner)
			server.Close()
			inner.Close()
		})
	}
	p.wg.Go(func() {
		n, _ := io.CopyN(inner, server, after)
		end(n == after)
	})
	p.wg.Go(func() {
		io.Copy(server, inner)
		end(false)
	})
	return outer, nil
}

// Close ends all connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.done = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
