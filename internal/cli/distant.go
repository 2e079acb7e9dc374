package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/home"
	"github.com/tend-run/tend/internal/lib/peercred"
	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/server"
)

type distantCmd struct {
	Lines  distantLinesCmd  `cmd:"" signals:"int,term,hup" default:"" help:"Serve JSON lines."`
	Listen distantListenCmd `cmd:"" help:"Serve the encrypted transport of the distant command line; prints the URI to connect to."`
}

// distantLinesCmd serves distant's messages as JSON lines.
type distantLinesCmd struct {
	Stdio      bool   `help:"On stdin and stdout."`
	Unix       string `name:"unix" placeholder:"PATH" help:"On a unix socket that only this user may open."`
	ListenJSON string `name:"listen-json" placeholder:"ADDR" help:"On a TCP address, which must be a loopback address; only this user and root are admitted."`
	PortFile   string `name:"port-file" placeholder:"FILE" help:"Write the TCP address here once it serves."`
	Insecure   bool   `help:"Listen on any address, and admit everybody who can reach it."`
}

func (c *distantLinesCmd) Run(ctx context.Context, inv *invocation) error {
	if !c.Stdio && c.Unix == "" && c.ListenJSON == "" {
		return usageError("give --stdio, --unix PATH or --listen-json ADDR, or use tend distant listen for the distant command line")
	}
	if c.PortFile != "" {
		if err := checkPortFile(c.PortFile); err != nil {
			return err
		}
	}
	listeners, err := c.listen()
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err != nil {
		return err
	}
	f, err := inv.distantFace(ctx, "")
	if err != nil && ctx.Err() != nil { // asked to end before it served
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.announce(inv, listeners); err != nil {
		return err
	}
	if !c.Stdio {
		return serveListeners(ctx, f, listeners, c.Insecure)
	}
	// Reading from stdin cannot be broken off: the end of this program does it.
	served := make(chan error, 1)
	go func() { served <- f.ServeLines(ctx, inv.in, inv.out) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return nil
	}
}

// distantFace is the face over the daemon of this command line, in the
// directory and with the environment of this program.
func (inv *invocation) distantFace(ctx context.Context, dir string) (*distant.Face, error) {
	d, err := inv.connectOrStart(ctx)
	if err != nil {
		return nil, err
	}
	cfg := distant.Config{Sandbox: host.NewMachine(d), Remote: !d.local, Version: versionText(), Shell: inv.getenv("SHELL"), Dir: dir}
	if d.local {
		cfg.Environ = inheritable()
		if dir == "" {
			cfg.Dir, err = os.Getwd()
		} else {
			cfg.Dir, err = filepath.Abs(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	return distant.New(cfg)
}

// inheritable is the environment of this program without the token, which is for
// this program alone: the environments of processes are kept and listed.
func inheritable() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TEND_TOKEN=") })
}

// listen returns the listeners also beside an error, for the caller to close.
func (c *distantLinesCmd) listen() (listeners []net.Listener, err error) {
	if c.Unix != "" {
		l, err := listenUnix(c.Unix)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
	}
	if c.ListenJSON != "" {
		addr, err := resolve("--listen-json", c.ListenJSON)
		if err != nil {
			return listeners, err
		}
		// These lines know no secret that a caller could show.
		if server.CheckListen("tcp", addr, false, c.Insecure) != nil {
			return listeners, fmt.Errorf("listening on %s would let everybody who reaches it run programs here, as JSON lines know no token; "+
				"listen on 127.0.0.1, use tend distant listen, or accept the risk with --insecure", addr)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// listenUnix makes a socket for this user alone, in place of one that no program
// serves any more.
func listenUnix(path string) (l net.Listener, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := home.CheckSocket(path); err != nil {
		return nil, err
	}
	if fi, err := os.Lstat(path); err == nil && fi.Mode()&os.ModeSocket != 0 {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("somebody serves %s already; give another --unix PATH", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	privately(func() { l, err = net.Listen("unix", path) })
	return l, err
}

// announce prints where it listens, for people and for programs.
func (c *distantLinesCmd) announce(inv *invocation, listeners []net.Listener) error {
	for _, l := range listeners {
		inv.note("JSON lines on %s", l.Addr())
		if l.Addr().Network() == "tcp" && c.PortFile != "" {
			if err := atomicfile.File(c.PortFile, []byte(l.Addr().String()+"\n"), 0o644); err != nil {
				return fmt.Errorf("write the address: %w", err)
			}
		}
	}
	return nil
}

// maxLineConns bounds the connections of JSON lines that are open at once.
const maxLineConns = 1024

// serveListeners serves every connection until ctx ends.
func serveListeners(ctx context.Context, f *distant.Face, listeners []net.Listener, insecure bool) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	free := make(chan struct{}, maxLineConns)
	for _, l := range listeners {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		wg.Go(func() {
			for {
				free <- struct{}{}
				conn, err := l.Accept()
				if err != nil {
					cancel(err)
					return
				}
				wg.Go(func() {
					defer func() { <-free }()
					if err := admitted(conn); err != nil && !insecure {
						turnAway(conn, err)
						return
					}
					serveConn(ctx, f, conn)
				})
			}
		})
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// admitted reports why the other end of a connection is not this user or root.
func admitted(conn net.Conn) error {
	uid, err := peercred.UID(conn)
	switch {
	case err != nil:
		return fmt.Errorf("this port is for user %d and root, and the user who calls is not known: %w", os.Geteuid(), err)
	case uid != 0 && uid != os.Geteuid():
		return fmt.Errorf("this port is for user %d and root, and you are user %d; run your own tend distant", os.Geteuid(), uid)
	}
	return nil
}

// turnAway says why, in the one line that a client of these messages reads.
func turnAway(conn net.Conn, why error) {
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(distant.Refusal(why)) // the client may be gone
}

func serveConn(ctx context.Context, f *distant.Face, conn io.ReadWriteCloser) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	// How a connection ends concerns its client, who knows it.
	_ = f.ServeLines(ctx, conn, conn)
}
