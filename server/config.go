package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
)

// Config says what a server serves. Manager, Listeners and StateDir are
// needed.
type Config struct {
	Manager   process.Manager
	Listeners []net.Listener
	// Held: another process holds the listening sockets too, and gives them to
	// the server that follows this one.
	Held bool
	// Distant is where distant's encrypted transport is served; nil: nowhere.
	Distant net.Listener
	// StateDir is an existing directory, owned by the server's user.
	StateDir string

	// Token that callers over TCP must show. Empty: none.
	Token string
	// Insecure allows listeners that are not loopback although there is no
	// token, and callers from any web page.
	Insecure bool

	// DefaultUser and DefaultWorkdir are for envd requests that name none.
	// Empty: the user the server runs as, and the user's home.
	DefaultUser, DefaultWorkdir string

	// PortFile gets the URL once the server serves. Empty: no file.
	PortFile string
	// URLFile gets the URL that callers on this machine should use, which is
	// the unix socket if there is one. Empty: no file.
	URLFile string

	// Roles tells the daemon's own processes; nil: not known here.
	Roles func() (Roles, error)
	// Promises tells what this machine allows; nil: nothing is told.
	Promises func() []Promise
	// Upgrade replaces parts of the daemon; nil: it cannot be asked for here.
	Upgrade func(ctx context.Context, what Upgrade) error
	// Shutdown begins the end of the daemon, with keep all but its processes,
	// and returns before it; nil: it cannot be asked for here.
	Shutdown func(keep bool) error

	Version string
	Log     *slog.Logger // nil: nothing is logged
	Limits  Limits
}

// Roles are the daemon's own processes.
type Roles struct{ Anchor, Keeper, Server Role }

// Role is one of them.
type Role struct {
	PID      int
	Restarts int64 // since the anchor started
}

// Promise is one thing that this machine may or may not allow.
type Promise struct {
	Name   string // "cgroup_kill"
	Kept   bool
	Detail string // what it means when it is not kept, or how it is
}

// Upgrade says which parts to replace. Both false means both.
type Upgrade struct {
	Server, Keeper bool
	// Binary is the new program; empty: what lies where the running one came
	// from.
	Binary string
}

// Limits of one server. Zero fields take their defaults.
type Limits struct {
	Connections   int           // open TCP and unix connections; 16,384, and what descriptors allow
	Requests      int           // requests being served, streams included; 20,000
	InFlight      int64         // memory of requests that are being read and decoded, in bytes; 512 MiB
	StreamsPer    int           // concurrent HTTP/2 streams of one connection; 1,000
	HeaderBytes   int           // 64 KiB
	HeaderTimeout time.Duration // from the first byte to the end of the header; 10 s
	BodyPause     time.Duration // between two pieces of a request's body; 1 min
	IdleTimeout   time.Duration // of a kept connection between requests; 2 min
	Drain         time.Duration // for running requests at the end; 2 s
}

func (l Limits) withDefaults(descriptors int) Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Connections, 16384)
	// A request may need a file beside its connection: leave half.
	if descriptors > 0 {
		l.Connections = min(l.Connections, max(16, descriptors/2))
	}
	def(&l.Requests, 20000)
	if l.InFlight <= 0 {
		l.InFlight = 512 << 20
	}
	def(&l.StreamsPer, 1000)
	def(&l.HeaderBytes, 64<<10)
	if l.HeaderTimeout <= 0 {
		l.HeaderTimeout = 10 * time.Second
	}
	if l.BodyPause <= 0 {
		l.BodyPause = time.Minute
	}
	if l.IdleTimeout <= 0 {
		l.IdleTimeout = 2 * time.Minute
	}
	if l.Drain <= 0 {
		l.Drain = 2 * time.Second
	}
	return l
}

func (c *Config) validate() error {
	switch {
	case c.Manager == nil:
		return errors.New("server: no manager is given")
	case len(c.Listeners) == 0:
		return errors.New("server: no listener is given")
	case c.StateDir == "":
		return errors.New("server: no state directory is given")
	case strings.ContainsAny(c.Token, "\r\n \t"):
		return errors.New("server: the token has white space; HTTP headers cannot carry it")
	}
	for _, l := range c.Listeners {
		if err := CheckListen(l.Addr().Network(), l.Addr().String(), c.Token != "", c.Insecure); err != nil {
			return err
		}
	}
	return nil
}

// CheckListen reports why a server must not listen on an address: whoever
// reaches the port may run programs, so without a token it has to be a
// loopback address or a unix socket.
func CheckListen(network, address string, token, insecure bool) error {
	if strings.HasPrefix(network, "unix") || token || insecure {
		return nil
	}
	if ap, err := netip.ParseAddrPort(address); err == nil && ap.Addr().Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("listening on %s without a token would let everybody who reaches it run programs here; "+
		"give --token-file FILE, or listen on 127.0.0.1, or accept the risk with --insecure", address)
}
