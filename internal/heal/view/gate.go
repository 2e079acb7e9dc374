package view

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/netpipe"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// RelayVerb is the argument with which this program is [Relay]: then an address to listen at, and the socket
// that each connection goes to.
const RelayVerb = "heal-relay"

const (
	// gateAt and relayAt are where, in a view, the sockets of a gate are, and this program.
	gateAt, relayAt = "/mnt/tend-pass", "/mnt/tend-relay"
	// gateDir is how the name of its directory begins; the ID follows.
	gateDir = "tend-pass-"
	// gateTime is how long the program may take until it listens.
	gateTime = 30 * time.Second
)

// gate lets a run of the service out to what is named. Of an address on the loopback a program in the view
// listens at the same address, and passes each connection to a socket of this process.
type gate struct {
	v       *View
	dir     string
	sockets []net.Listener
}

func (v *View) openGate() (*gate, error) {
	g := &gate{v: v}
	for _, p := range v.Pass {
		if !p.Local.IsValid() {
			continue
		}
		if err := g.listen(p.Local); err != nil {
			g.close()
			return nil, fmt.Errorf("let a view reach %v: %w", p.Local, err)
		}
	}
	return g, nil
}

func (g *gate) listen(to netip.AddrPort) (err error) {
	if g.dir == "" {
		if g.dir, err = os.MkdirTemp("", gateDir+g.v.ID+"-"); err == nil {
			if g.dir, err = filepath.EvalSymlinks(g.dir); err == nil {
				err = os.Chmod(g.dir, 0o711)
			}
		}
	}
	if err != nil {
		return err
	}
	at := filepath.Join(g.dir, fmt.Sprint(len(g.sockets)))
	l, err := net.Listen("unix", at)
	if err != nil {
		return err
	}
	g.sockets = append(g.sockets, l)
	go serve(l, func(ctx context.Context) (net.Conn, error) { return g.v.Dial(ctx, "tcp", to.String()) })
	return os.Chmod(at, 0o666)
}

// serve joins each connection with another one, until the listener is closed.
func serve(l net.Listener, dial func(context.Context) (net.Conn, error)) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			ctx, cancel := context.WithTimeout(context.Background(), gateTime)
			defer cancel()
			if out, err := dial(ctx); err == nil {
				defer out.Close()
				netpipe.Join(in, out)
			}
		}()
	}
}

// into adds what the sandbox of a run needs for it.
func (g *gate) into(spec *tend.SandboxSpec) {
	for _, p := range g.v.Pass {
		switch {
		case p.Remote != "":
			spec.Network.Allow, spec.Network.Deny = append(spec.Network.Allow, p.Remote), nil
		case p.Socket != "":
			if real, err := filepath.EvalSymlinks(p.Socket); err == nil { // else the run shows that it is missing
				spec.Shares = append(spec.Shares, tend.SandboxShare{Source: real, Target: p.Socket, ReadOnly: true})
			}
		}
	}
	if g.dir != "" {
		spec.Shares = append(spec.Shares, tend.SandboxShare{Source: g.dir, Target: gateAt, ReadOnly: true},
			tend.SandboxShare{Source: g.v.Self, Target: relayAt, ReadOnly: true})
	}
}

// open starts the programs that listen in a view, and returns when they do.
func (g *gate) open(ctx context.Context, p *place) error {
	n := 0
	for _, one := range g.v.Pass {
		if !one.Local.IsValid() {
			continue
		}
		proc, err := p.inside.Start(ctx, process.Spec{Argv: []string{relayAt, RelayVerb, one.Local.String(), path.Join(gateAt, fmt.Sprint(n))},
			User: "root", Dir: "/", Inherit: process.InheritNone})
		if err != nil {
			return err
		}
		n++
		for end := time.Now().Add(gateTime); ; {
			text, err := Output(ctx, proc, maxOutput)
			if err != nil {
				return err
			}
			if text == listening {
				break
			}
			in, err := proc.Info(ctx)
			if err != nil {
				return err
			}
			if in.Exit != nil || time.Now().After(end) {
				return fmt.Errorf("a view cannot reach %v: %s", one.Local, text)
			}
			if !backoff.Wait(ctx, pace/4) {
				return ctx.Err()
			}
		}
	}
	return nil
}

func (g *gate) close() {
	for _, l := range g.sockets {
		_ = l.Close()
	}
	if g.dir != "" {
		_ = os.RemoveAll(g.dir)
	}
}

// listening is what the program says when it does.
const listening = "listening\n"

// Relay listens at an address, until it is killed, and passes each connection to a socket.
func Relay(address, socket string, out io.Writer) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, listening); err != nil {
		return err
	}
	serve(l, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	})
	return nil
}
