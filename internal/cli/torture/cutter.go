//go:build linux

package torture

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// cutter is a proxy between clients and the daemon that breaks connections. After
// some bytes of either direction it closes or resets them, or leaves them open
// and passes nothing on (half-open). Some are slow.
type cutter struct {
	l      net.Listener
	target string
	broken atomic.Int64

	wg   sync.WaitGroup
	mu   sync.Mutex
	rnd  *rand.Rand            // guarded by mu
	open map[net.Conn]struct{} // guarded by mu; nil: closed
}

// What happens to a connection.
const (
	cutNever = iota
	cutClosed
	cutReset
	cutHalfOpen
	cutFates
)

// Connections live for leastBytes to mostBytes; short ones are as likely as
// long ones.
const (
	leastBytes = 50
	mostBytes  = 2 << 20
)

// fate of one connection.
type fate struct {
	what     int
	after    int64 // bytes of one direction
	upstream bool  // the client's
	slow     bool
}

func newCutter(target string, rnd *rand.Rand) (*cutter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cutter{l: l, target: target, rnd: rnd, open: map[net.Conn]struct{}{}}
	c.wg.Go(c.accept)
	return c, nil
}

func (c *cutter) url() string { return "http://" + c.l.Addr().String() }

// close breaks everything and waits until nothing is left of it.
func (c *cutter) close() {
	c.l.Close()
	c.mu.Lock()
	for conn := range c.open {
		conn.Close()
	}
	c.open = nil
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cutter) accept() {
	for {
		client, err := c.l.Accept()
		if err != nil {
			return
		}
		c.wg.Go(func() { c.serve(client) })
	}
}

func (c *cutter) fate() fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	span := math.Log(mostBytes / leastBytes)
	return fate{what: c.rnd.IntN(cutFates), after: int64(leastBytes * math.Exp(c.rnd.Float64()*span)), upstream: c.rnd.IntN(4) == 0,
		slow: c.rnd.IntN(4) == 0}
}

// hold registers a connection for close. It returns false after close.
func (c *cutter) hold(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return false
	}
	c.open[conn] = struct{}{}
	return true
}

func (c *cutter) drop(conn net.Conn) {
	conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

func (c *cutter) serve(client net.Conn) {
	defer c.drop(client)
	if !c.hold(client) {
		return
	}
	server, err := net.DialTimeout("tcp", c.target, 10*time.Second)
	if err != nil {
		return
	}
	defer c.drop(server)
	if !c.hold(server) {
		return
	}
	f := c.fate()
	halfOpen := make(chan struct{}) // closed: nothing is passed on any more
	var once sync.Once
	end := func() {
		c.broken.Add(1)
		switch f.what {
		case cutHalfOpen:
			once.Do(func() { close(halfOpen) })
			return
		case cutReset:
			client.(*net.TCPConn).SetLinger(0)
			server.(*net.TCPConn).SetLinger(0)
		}
		client.Close()
		server.Close()
	}
	var both sync.WaitGroup
	pass := func(to, from net.Conn, mine bool) {
		left := int64(math.MaxInt64)
		if f.what != cutNever && mine {
			left = f.after
		}
		buf := make([]byte, 16<<10)
		for left > 0 {
			n, err := from.Read(buf[:min(int64(len(buf)), left)])
			select {
			case <-halfOpen:
				// The client must notice by itself that nothing comes any more.
				if err == nil {
					io.Copy(io.Discard, from)
				}
				from.Close()
				to.Close()
				return
			default:
			}
			if n > 0 {
				if _, err := to.Write(buf[:n]); err != nil {
					break
				}
				left -= int64(n)
			}
			if err != nil {
				break
			}
			if f.slow {
				time.Sleep(2 * time.Millisecond)
			}
		}
		if left > 0 {
			from.Close()
			to.Close()
			return
		}
		end()
		if f.what == cutHalfOpen {
			io.Copy(io.Discard, from)
			from.Close()
			to.Close()
		}
	}
	both.Go(func() { pass(server, client, f.upstream) })
	both.Go(func() { pass(client, server, !f.upstream) })
	both.Wait()
}

// stall opens a stream and never reads it, until ctx ends.
func stall(ctx context.Context, addr string, request []byte) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetReadBuffer(4 << 10)
	}
	if _, err := conn.Write(request); err != nil {
		return
	}
	<-ctx.Done()
}
