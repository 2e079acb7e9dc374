package cli

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/sdk/go"
)

// How long a daemon may not answer before a command gives up: patience when nothing
// is reached, at the first and at each later try together; silence on a connection
// that exists, which is more than the heartbeat's 15 s. What a process does may take
// as long as it likes.
const (
	patience = 10 * time.Second
	silence  = 20 * time.Second
)

// dial reaches the daemon at one URL. The connection is closed when the command has
// ended.
func (inv *invocation) dial(ctx context.Context, target string) (*daemon, error) {
	c, err := tend.Dial(ctx, target, tend.Options{Token: inv.flags.Token, Patience: patience, Silence: silence})
	if err != nil {
		return nil, err
	}
	// Over TCP the daemon may be in a container, even on a loopback address: its
	// paths and pids are not ours.
	d := &daemon{Client: c, local: strings.HasPrefix(target, "unix:"), url: target, machine: true}
	inv.dialed = append(inv.dialed, d)
	return d, nil
}

// nobodyAt reports whether no program listens at a URL.
func nobodyAt(ctx context.Context, target string) bool {
	network, address := "unix", strings.TrimPrefix(target, "unix://")
	if u, err := url.Parse(target); err == nil && u.Scheme != "unix" {
		network, address = "tcp", u.Host
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err == nil {
		c.Close()
		return false
	}
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR)
}
