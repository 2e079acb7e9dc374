package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/lib/netpipe"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// maxForwarded is how many connections of one port here are passed on at a time; more wait.
const maxForwarded = 512

type forwardCmd struct {
	Address string `placeholder:"ADDR" default:"127.0.0.1" help:"Address to listen on. Everybody who reaches another one than a loopback address reaches the port. Default: 127.0.0.1."`

	Sandbox string   `arg:"" complete:"sandbox" help:"The sandbox."`
	Ports   []string `arg:"" name:"port" help:"LOCAL:PORT, or PORT for the same one here; 0:PORT picks a free one here."`
}

// forwardFacts is the JSON of one port of "tend forward".
type forwardFacts struct {
	Address string `json:"address"` // here
	Port    int    `json:"port"`    // in the sandbox
}

// forwarded are two ports; a local of 0 picks one.
type forwarded struct{ local, port int }

func parseForward(s string) (f forwarded, err error) {
	local, port, two := strings.Cut(s, ":")
	if !two {
		local, port = port, local
	}
	if f.port, err = strconv.Atoi(port); err != nil || f.port < 1 || f.port > 65535 {
		return f, usageError(fmt.Sprintf("%.80q: write LOCAL:PORT, as in 8080:3000, or PORT; ports are 1 to 65535", s))
	}
	if f.local = f.port; two {
		if f.local, err = strconv.Atoi(local); err != nil || f.local < 0 || f.local > 65535 {
			return f, usageError(fmt.Sprintf("%.80q: write LOCAL:PORT, as in 8080:3000; LOCAL is 0 to 65535, and 0 picks a free one", s))
		}
	}
	return f, nil
}

func (c *forwardCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if net.ParseIP(c.Address) == nil {
		return usageError(fmt.Sprintf("--address %.80q: give an address of this machine, such as 127.0.0.1", c.Address))
	}
	var pairs []forwarded
	for _, s := range c.Ports {
		f, err := parseForward(s)
		if err != nil {
			return err
		}
		pairs = append(pairs, f)
	}
	box, _, err := d.sandbox(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	broken := make(chan error, len(pairs))
	for _, f := range pairs {
		l, err := net.Listen("tcp", net.JoinHostPort(c.Address, strconv.Itoa(f.local)))
		if err != nil {
			return fmt.Errorf("%w (0:%d picks a free port here)", err, f.port)
		}
		context.AfterFunc(ctx, func() { l.Close() })
		at := l.Addr().String()
		if err := inv.answer(printJSONLine, forwardFacts{at, f.port}, fmt.Sprintf("%s -> %s:%d", at, c.Sandbox, f.port)); err != nil {
			l.Close()
			return err
		}
		wg.Go(func() { broken <- inv.forward(ctx, l, box, f.port) })
	}
	select {
	case err = <-broken:
	case <-ctx.Done():
	}
	return err
}

// forward passes the connections of a listener on until ctx ends.
func (inv *invocation) forward(ctx context.Context, l net.Listener, box *tend.Sandbox, port int) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxForwarded)
	for {
		conn, err := l.Accept()
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
			inside, err := box.Dial(ctx, port)
			if err != nil {
				if t, ok := conn.(*net.TCPConn); ok {
					_ = t.SetLinger(0) // it is refused, as the port itself would
				}
				if ctx.Err() == nil {
					inv.note("port %d: %v", port, err)
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

type sandboxURLCmd struct {
	Sandbox string `arg:"" complete:"sandbox" help:"The sandbox."`
	Port    int    `arg:"" help:"The port in it."`
}

// sandboxURLFacts is the JSON of "tend sandbox url".
type sandboxURLFacts struct {
	URL string `json:"url"`
	// Token: requests need it in the header E2b-Traffic-Access-Token. "": the port is open to all.
	Token string `json:"token"`
}

func (c *sandboxURLCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	box, info, err := d.sandbox(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	url, err := "", error(nil)
	if d.local {
		var status tend.Status
		if status, err = d.Status(ctx); err == nil {
			url, err = box.URLAt(ctx, status.URL, c.Port)
		}
	} else {
		url, err = box.URL(ctx, c.Port)
	}
	if errors.Is(err, process.ErrUnsupported) {
		return fmt.Errorf("%w; tend forward %s %d reaches the port", err, c.Sandbox, c.Port)
	}
	if err != nil {
		return err
	}
	facts := sandboxURLFacts{URL: url}
	if !info.Network.Public {
		a, err := box.Access(ctx)
		if err != nil {
			return err
		}
		facts.Token = a.TrafficToken
	}
	return inv.answer(printJSON, facts, url)
}
