package tend_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// fault says what a proxy does to one connection after it has passed on a
// number of bytes from the server.
type fault struct {
	after int64
	kind  faultKind
}

type faultKind int

const (
	closes faultKind = iota // ends the connection in order
	resets                  // sends RST
	silent                  // stays open and passes nothing on
)

// proxy stands between a client and a server and breaks connections, the nth
// by the nth fault; connections beyond the last are left alone.
type proxy struct {
	t      testing.TB
	l      net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	target string     // guarded by mu
	faults []fault    // guarded by mu
	conns  []net.Conn // guarded by mu
	broken int        // guarded by mu
}

func newProxy(t testing.TB, target string, faults ...fault) *proxy {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proxy{t: t, l: l, target: target, faults: faults}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string { return "http://" + p.l.Addr().String() }

// retarget sends connections from now on to another server.
func (p *proxy) retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// breaks returns how many connections were broken.
func (p *proxy) breaks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

func (p *proxy) close() {
	p.l.Close()
	p.cutAll()
	p.wg.Wait()
}

// cutAll ends all connections.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		f := fault{after: 1 << 62}
		if len(p.faults) > 0 {
			f, p.faults = p.faults[0], p.faults[1:]
		}
		server, err := net.Dial("tcp", target)
		if err != nil {
			p.mu.Unlock()
			client.Close()
			continue
		}
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() {
			io.Copy(server, client)
			server.Close()
		})
		p.wg.Go(func() { p.answer(client, server, f) })
	}
}

func (p *proxy) answer(client, server net.Conn, f fault) {
	_, err := io.CopyN(client, server, f.after)
	if errors.Is(err, io.EOF) || err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.broken++
	p.mu.Unlock()
	switch f.kind {
	case silent:
		// What comes is read and lost, until the client gives up.
		io.Copy(io.Discard, server)
	case resets:
		client.(*net.TCPConn).SetLinger(0)
	}
	client.Close()
	server.Close()
}
