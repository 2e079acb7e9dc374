package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	where "github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/server/metrics"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/process"
)

// InFlight is the memory that may be held for clients, in bytes, if Config has no budget.
const InFlight = 512 << 20

// Config configures a server: a driver, and parts that use it. Manager and Listeners
// are required.
type Config struct {
	operator.Settings
	// Manager is used only by the readiness probe; parts have their own access to the
	// processes.
	Manager process.Manager
	// Driver of the sandboxes. The server runs its background work ([driver.Runner]). nil:
	// there are no sandboxes.
	Driver driver.Driver
	// Parts implement everything beyond the server's own probes. They are closed in this
	// order at the end.
	Parts []module.Part

	// Doors have the listening sockets inside sandboxes. nil: there are none.
	Doors *where.Doors

	// Door is the page's own port, which may be opened at any time: Serve is called once, with
	// what serves its listeners, and Close at the end. nil: there is none.
	Door interface {
		Serve(serve func(net.Listener))
		Close() error
	}

	// TokenNow returns the current token, if a part may change it. nil: Token.
	TokenNow func() protocol.Token
	// Session says what a request may do without the token because this server's page sent
	// it from a logged-in browser. It must make sure that no other page caused the
	// request. A request ends with its login. nil: nothing.
	Session func(*http.Request) module.Login

	// Certificates are for Settings.TLS.Listeners, and required with them.
	Certificates *tls.Config

	// Final reports, when the server ends, whether the whole daemon ends and all processes
	// have ended. nil: false.
	Final func() bool

	// Used is called when a request begins and when it ends, possibly concurrently. nil:
	// nothing.
	Used func()

	// Around wraps the handler of each request after routing; the Pattern of a request
	// without a route is "". It must call the handler once for each request. nil: nothing.
	Around func(http.Handler) http.Handler

	// Metrics are counted here; nil: in new ones.
	Metrics *metrics.Metrics
	// Budget of the memory that is held for clients; nil: a new one of 512 MiB.
	Budget *budget.Budget

	Limits Limits
}

// Limits of one server. Zero fields take their defaults.
type Limits struct {
	Connections   int           // open TCP and unix connections; 16,384, and what descriptors allow
	Requests      int           // requests being served, streams included; 20,000
	StreamsPer    int           // concurrent HTTP/2 streams of one connection; 1,000
	HeaderBytes   int           // 64 KiB
	HeaderTimeout time.Duration // from the first byte to the end of the header; 10 s
	BodyPause     time.Duration // between two pieces of a request's body; 1 min
	IdleTimeout   time.Duration // of a kept connection between requests; 2 min
	Drain         time.Duration // for running requests at the end; 2 s
	CutOff        time.Duration // for the requests cut off after Drain to return; 1 s
}

func (l Limits) withDefaults(descriptors int) Limits {
	l.Connections = cmp.Or(l.Connections, 16384)
	// A request may need a file beside its connection: leave half.
	if descriptors > 0 {
		l.Connections = min(l.Connections, max(16, descriptors/2))
	}
	l.Requests = cmp.Or(l.Requests, 20000)
	l.StreamsPer = cmp.Or(l.StreamsPer, 1000)
	l.HeaderBytes = cmp.Or(l.HeaderBytes, 64<<10)
	l.HeaderTimeout = cmp.Or(l.HeaderTimeout, 10*time.Second)
	l.BodyPause = cmp.Or(l.BodyPause, time.Minute)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, 2*time.Minute)
	l.Drain = cmp.Or(l.Drain, 2*time.Second)
	l.CutOff = cmp.Or(l.CutOff, time.Second) // anchor, serverGrace: 5 s in all
	return l
}

func (c *Config) validate() error {
	switch {
	case c.Manager == nil:
		return errors.New("server: no manager is given")
	case len(c.Listeners) == 0:
		return errors.New("server: no listener is given")
	case len(c.TLS.Listeners) > 0 && (c.Certificates == nil || len(c.Domains) == 0):
		return errors.New("server: TLS needs certificates and a domain")
	case strings.ContainsAny(string(c.Token), "\r\n \t"):
		return errors.New("server: the token has white space; HTTP headers cannot carry it")
	}
	for _, d := range c.Domains {
		if err := CheckDomain(d); err != nil {
			return err
		}
	}
	for _, o := range c.Origins {
		if err := CheckOrigin(o); err != nil {
			return err
		}
	}
	for _, l := range slices.Concat(c.Listeners, c.TLS.Listeners) {
		if err := CheckListen(l.Addr().Network(), l.Addr().String(), c.Token != "", c.Insecure); err != nil {
			return err
		}
	}
	return nil
}

// CheckListen reports why a server must not listen on an address. Everybody who reaches
// the port may run programs, so without a token it must be a loopback address or a unix
// socket.
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

// CheckDomain returns an error if a domain of Config.Domains is invalid, or nil. The
// operator must own the domain, because its owner can make its names resolve to this
// server (DNS rebinding).
func CheckDomain(d string) error {
	foreign := func(c rune) bool {
		return c != '.' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z')
	}
	if _, err := netip.ParseAddr(d); err == nil || len(d) > 200 || strings.ContainsFunc(d, foreign) ||
		!strings.Contains(strings.Trim(d, "."), ".") || strings.Trim(d, ".") != d {
		return fmt.Errorf("%.200q is no domain below which sandboxes can have names; give one that you hold, such as sandbox.example.com", d)
	}
	return nil
}

// CheckOrigin returns an error if an origin of Config.Origins is not as browsers write it, or
// nil. Everybody who can serve a page there can run programs here.
func CheckOrigin(o string) error {
	switch written, err := protocol.ParseOrigin(o); {
	case err != nil:
		return fmt.Errorf("%.200q %w", o, err)
	case written != o:
		return fmt.Errorf("%.200q is not as browsers write an origin; write %s", o, written)
	}
	return nil
}
