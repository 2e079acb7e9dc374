package cli

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/tend-run/tend/internal/protocol/mcp/relay"
)

// mcpCmd serves the Model Context Protocol on stdin and stdout.
type mcpCmd struct {
	inSandbox
}

func (c *mcpCmd) Run(ctx context.Context, inv *invocation) error {
	sandbox := ""
	r := &relay.Relay{Connect: func(ctx context.Context) (t relay.Target, err error) {
		d, err := inv.connectOrStart(ctx)
		if err != nil {
			return t, err
		}
		t.Header = http.Header{}
		if inv.flags.Token != "" {
			t.Header.Set("Authorization", "Bearer "+inv.flags.Token)
		}
		if inv.sandbox != "" {
			if sandbox == "" { // the same sandbox for ever, even if another one gets its name
				_, info, err := d.sandbox(ctx, inv.sandbox)
				if err != nil {
					return t, err
				}
				sandbox = info.ID
			}
			t.Header.Set("Tend-Sandbox", sandbox)
		} else if dir, err := os.Getwd(); err == nil && d.local {
			t.Header.Set("Tend-Dir", dir)
			t.Header.Set("Tend-Path", inv.getenv("PATH"))
		}
		t.Client, t.URL = d.plainHTTP("/mcp")
		return t, nil
	}}
	err := r.Run(ctx, inv.in, inv.out)
	if ctx.Err() != nil { // asked to end
		return nil
	}
	return err
}

// plainHTTP is a client for the paths of the daemon that are no calls of its own API,
// and the URL of one.
func (d *daemon) plainHTTP(at string) (*http.Client, string) {
	path, unix := strings.CutPrefix(d.url, "unix:")
	if !unix {
		return &http.Client{}, strings.TrimSuffix(d.url, "/") + at
	}
	path = strings.TrimPrefix(path, "//")
	var dialer net.Dialer
	return &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) },
		MaxIdleConnsPerHost: 16,
	}}, "http://tend" + at
}
