package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/lib/netpipe"
	tend "github.com/tend-run/tend/sdk/go"
)

// publication is a port of this machine that leads to one of a sandbox.
type publication struct {
	host string // "": the loopback alone
	port int    // 0: any that is free
	to   int
	l    net.Listener
}

// publicationOf reads [[IP:]PORT:]PORT. flag is what it was given to: "--publish ".
func publicationOf(flag, text string) (p publication, err error) {
	fail := func(why string) (publication, error) {
		return p, usageError(fmt.Sprintf("%s%.80s: %s; write [[IP:]PORT:]PORT, the port inside last", flag, text, why))
	}
	rest, proto, _ := strings.Cut(text, "/")
	if proto != "" && proto != "tcp" {
		return fail("only tcp is served")
	}
	rest, inside := cutLast(rest)
	if p.to, err = portOf(inside); err != nil || p.to == 0 {
		return fail("no port inside is named")
	}
	if rest != "" {
		host, outside := cutLast(rest)
		if p.port, err = portOf(outside); err != nil {
			return fail("no port of this machine is named")
		}
		if p.host = strings.Trim(host, "[]"); p.host != "" && net.ParseIP(p.host) == nil {
			return fail("what is before the ports is no address")
		}
	}
	return p, nil
}

// cutLast cuts what is behind the last colon.
func cutLast(s string) (before, after string) {
	at := strings.LastIndexByte(s, ':')
	return s[:max(at, 0)], s[at+1:]
}

func portOf(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err //nolint:gosec // 16 bits
}

// listen takes the port on this machine.
func (p *publication) listen() (err error) {
	p.l, err = net.Listen("tcp", net.JoinHostPort(cmp.Or(p.host, "127.0.0.1"), strconv.Itoa(p.port)))
	return err
}

// maxForwarded is how many connections of one port here are passed on at a time; more wait.
const maxForwarded = 512

// serve joins each connection with one to the port inside, until ctx ends, and returns when all have ended.
func (p *publication) serve(ctx context.Context, inv *invocation, sandbox *tend.Sandbox) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { p.l.Close() })()
	slots := make(chan struct{}, maxForwarded)
	for {
		conn, err := p.l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return nil
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			inside, err := sandbox.Dial(ctx, p.to)
			if err != nil {
				if t, ok := conn.(*net.TCPConn); ok {
					_ = t.SetLinger(0) // it is refused, as the port itself would
				}
				if ctx.Err() == nil {
					inv.note("port %d: %v", p.to, err)
				}
				return
			}
			defer inside.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close(); inside.Close() })
			defer stop()
			netpipe.Join(conn, inside)
		})
	}
}
