package tend

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"
)

// connections carry requests to the server, with the token. They can be replaced
// by new ones, the next generation: a server that goes away still answers on the
// connections that it has, and a dead one leaves HTTP/2 connections that look
// alive, so a client that comes back must use none of them.
type connections struct {
	url   string // as people gave it
	token string

	mu         sync.Mutex
	now        *http.Transport // guarded by mu
	old        *http.Transport // guarded by mu; streams may still use it
	generation int             // guarded by mu: how often they were replaced

	answered atomic.Int32 // status of the last answer; 0: there was none
	ours     atomic.Bool  // it had the form of an answer of tend, whatever became of it on the way
}

// RoundTrip implements http.RoundTripper.
func (c *connections) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	c.mu.Lock()
	tr := c.now
	c.mu.Unlock()
	resp, err := tr.RoundTrip(r)
	if err == nil {
		c.answered.Store(int32(resp.StatusCode))
		c.ours.Store(resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "application/proto")
	}
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		resp.Body.Close()
		// The code is one that is not tried again.
		return nil, connect.NewError(connect.CodeFailedPrecondition, &RedirectError{URL: c.url, Location: to})
	}
	return whole(resp)
}

// maxErrorBody bounds the body of an error, in bytes.
const maxErrorBody = 1 << 20

// whole reads the body of a refusal. It says which refusal it is: one that a
// dying server left half said is a broken connection, not an unknown error.
func whole(resp *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// raw opens a connection of its own to the server, for what is no request of HTTP. It
// goes the way that requests go, but through no proxy.
func (c *connections) raw(ctx context.Context, to *url.URL) (net.Conn, error) {
	c.mu.Lock()
	tr := c.now
	c.mu.Unlock()
	host := to.Host
	if to.Port() == "" {
		host = net.JoinHostPort(to.Hostname(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	}
	conn, err := tr.DialContext(ctx, "tcp", host)
	if c, ok := conn.(*firstWord); ok {
		conn = c.Conn // who reads first is the caller's matter
	}
	if err != nil || to.Scheme != "https" {
		return conn, err
	}
	config := new(tls.Config)
	if tr.TLSClientConfig != nil {
		config = tr.TLSClientConfig.Clone()
	}
	config.ServerName, config.NextProtos = cmp.Or(config.ServerName, to.Hostname()), []string{"http/1.1"}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// current returns the generation that requests made from now on use, or a later
// one.
func (c *connections) current() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

// replace makes later requests use new connections, unless those of this
// generation were replaced before.
func (c *connections) replace(generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation {
		return
	}
	c.generation++
	if c.old != nil {
		c.old.CloseIdleConnections()
	}
	c.old, c.now = c.now, c.now.Clone()
	c.old.CloseIdleConnections()
}

// close closes the connections that carry no request.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.old != nil {
		c.old.CloseIdleConnections()
	}
	c.now.CloseIdleConnections()
}
