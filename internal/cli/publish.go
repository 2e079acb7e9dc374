package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/netpipe"
	"github.com/tend-run/tend/sdk/go"
)

// publication is a port of this machine that leads to one of a sandbox.
type publication struct {
	host string // "": the loopback alone
	port int    // 0: any that is free
	to   int
	l    net.Listener
}

// publicationOf reads [[IP:]PORT:]PORT.
func publicationOf(text string) (p publication, err error) {
	fail := func(why string) (publication, error) {
		return p, usageError(fmt.Sprintf("--publish %.80s: %s; write [[IP:]PORT:]PORT, the port inside last", text, why))
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
func (p *publication) listen(inv *invocation) (err error) {
	host := p.host
	if host == "" {
		host = "127.0.0.1"
	}
	if p.l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p.port))); err != nil {
		return fmt.Errorf("--publish: %w", err)
	}
	if p.port == 0 {
		inv.note("port %d of the sandbox is at %v", p.to, p.l.Addr())
	}
	return nil
}

// serve joins each connection with one to the port inside, until the listener is closed.
func (p *publication) serve(ctx context.Context, box *tend.Sandbox) {
	for {
		c, err := p.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one connection
		}
		go func() {
			defer c.Close()
			inside, err := box.Dial(ctx, p.to)
			if err != nil {
				return // as of a port on which nobody listens
			}
			defer inside.Close()
			netpipe.Join(c, inside)
		}()
	}
}
