package tend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// errSilent: the server said nothing for longer than it may.
var errSilent = errors.New("the server has gone silent")

// target is where a URL points to.
type target struct {
	base   string // of the API's URLs
	socket string // path of a unix socket, or ""
	tls    bool
}

// parseTarget refuses what it would otherwise ignore, and repeats no password.
func parseTarget(raw string) (target, error) {
	const forms = "write http://HOST:PORT, https://HOST or unix:///PATH"
	if path, ok := strings.CutPrefix(raw, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return target{}, wrongURL("names no socket; write unix:///run/tend.sock")
		}
		return target{base: "http://tend", socket: path}, nil
	}
	u, err := url.Parse(raw)
	if parse, ok := errors.AsType[*url.Error](err); ok {
		err = parse.Err // without the URL
	}
	switch {
	case err != nil:
		return target{}, wrongURL("cannot be read: %v; %s", err, forms)
	case u.User != nil:
		part := "a user name"
		if _, has := u.User.Password(); has {
			part = "a user name and a password"
		}
		return target{}, wrongURL("has %s, and the server knows none; give the token apart from it (TEND_TOKEN, Options.Token)", part)
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return target{}, wrongURL("%q has no form that is known; %s", raw, forms)
	case u.RawQuery != "" || u.ForceQuery:
		return target{}, wrongURL("has a query (?%.40s), which has no meaning here; %s", u.RawQuery, forms)
	case u.Fragment != "":
		return target{}, wrongURL("has a fragment (#%.40s), which has no meaning here; %s", u.Fragment, forms)
	case u.RawPath != "" && u.EscapedPath() != u.RawPath: // escaped anew, it would be another path
		return target{}, wrongURL("has a path with characters that must be escaped (%.60q); write %%20 for a space", u.RawPath)
	}
	base := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath} // escapes the zone of an address and the path
	return target{base: strings.TrimSuffix(base.String(), "/"), tls: u.Scheme == "https"}, nil
}

func wrongURL(format string, args ...any) error {
	return &process.InvalidError{Field: "url", Reason: fmt.Sprintf(format, args...)}
}

// transport makes the HTTP side. HTTP/2 carries any number of streams over one
// connection and notices a dead peer by pings, early enough that the streams
// which then give up find a new connection; over HTTP/1.1 each stream has a
// connection.
func (t target) transport(opts Options, http2 bool, silence time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	dial := opts.DialContext
	if dial == nil {
		dial = dialer.DialContext
	}
	if t.socket != "" {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", t.socket)
		}
	}
	tr := &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     opts.TLS,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: silence / 3, PingTimeout: silence / 3, MaxReadFrameSize: 1 << 20},
	}
	if t.socket == "" && opts.DialContext == nil {
		tr.Proxy = http.ProxyFromEnvironment
	}
	switch {
	case http2 && t.tls:
		tr.Protocols.SetHTTP2(true)
		tr.Protocols.SetHTTP1(true)
	case http2:
		tr.Protocols.SetUnencryptedHTTP2(true)
	default:
		tr.Protocols.SetHTTP1(true)
	}
	return tr
}

// road is the way of requests to the server: it shows the token, and can be
// replaced by a fresh one with connections of its own. A server that goes away
// still answers on the connections it has, and a dead one holds HTTP/2
// connections that look alive, so whoever comes back must not use them.
type road struct {
	url   string // as people gave it
	token string

	mu   sync.Mutex
	now  *http.Transport // guarded by mu
	old  *http.Transport // guarded by mu; streams may still use it
	turn int             // guarded by mu: how often it was replaced

	answered atomic.Int32 // status of the last answer; 0: there was none
	ours     atomic.Bool  // it had the form of an answer of tend, whatever became of it on the way
}

// RoundTrip implements http.RoundTripper.
func (w *road) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	w.mu.Lock()
	tr := w.now
	w.mu.Unlock()
	resp, err := tr.RoundTrip(r)
	if err == nil {
		w.answered.Store(int32(resp.StatusCode))
		w.ours.Store(resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "application/proto")
	}
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		resp.Body.Close()
		// The code is one that is not tried again.
		return nil, connect.NewError(connect.CodeFailedPrecondition, &RedirectError{URL: w.url, Location: to})
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

// taken returns the turn that requests made from now on use at least.
func (w *road) taken() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turn
}

// leave makes later requests use new connections, unless somebody who used the
// same ones has seen to it.
func (w *road) leave(turn int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if turn != w.turn {
		return
	}
	w.turn++
	if w.old != nil {
		w.old.CloseIdleConnections()
	}
	w.old, w.now = w.now, w.now.Clone()
	w.old.CloseIdleConnections()
}

// close ends connections without requests.
func (w *road) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.old != nil {
		w.old.CloseIdleConnections()
	}
	w.now.CloseIdleConnections()
}

// transient reports whether the same call may succeed on another connection.
// What the server itself said is its word, unless it said "unavailable";
// everything else that ended a call came from the way between.
func transient(err error) bool {
	if errors.Is(err, errSilent) {
		return true
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return false
	}
	if connect.IsWireError(err) {
		return e.Code() == connect.CodeUnavailable
	}
	switch e.Code() {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal, connect.CodeAborted,
		connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeDataLoss:
		return true
	}
	return false
}

// domainError turns what a call returned into the domain's error. Whether the
// caller's own context ended the call is looked at first.
func (c *Client) domainError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case c.closed.Err() != nil:
		return errClosed
	case errors.Is(err, errSilent):
		return fmt.Errorf("%s: %w: %w", c.url, err, process.ErrUnavailable)
	}
	if e, ok := errors.AsType[*RedirectError](err); ok {
		return e
	}
	known := tendpb.FromError(err)
	if e, ok := errors.AsType[*connect.Error](known); ok && transient(err) {
		return fmt.Errorf("%s: %s: %w", c.url, tendpb.CleanText(e.Message()), process.ErrUnavailable)
	}
	return known
}
