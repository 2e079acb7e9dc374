package tend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// errSilent is the end of a stream or attempt on which the server was silent too long.
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
	case u.RawPath != "" && u.EscapedPath() != u.RawPath: // escaped again, it would be another path
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
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second,
		Interval: 5 * time.Second, Count: 3}}
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
		tr.DialContext = afterRequest(dial)
	}
	return tr
}

// transient reports whether the same call may succeed on another connection.
// An error that the server itself sent is final, unless it is "unavailable". All
// others come from the connection.
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
