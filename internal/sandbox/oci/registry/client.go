package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
)

// Credentials of a registry.
type Credentials struct{ User, Password string }

// Config of a Client.
type Config struct {
	// Mirrors are asked before the registry itself: addresses, with a scheme, of those that
	// stand for a host. They are the operator's, wherever they are: May is not asked.
	Mirrors map[string][]*url.URL
	// Keychain has the credentials of this machine; nil: there are none.
	Keychain authn.Keychain
	// Certificates is where the certificates of registries are: HOST/*.crt below each.
	Certificates []string
	// Silence is how long a registry may send nothing. 0: a minute.
	Silence time.Duration
}

// Request names an image, and says for whom.
type Request struct {
	Ref oci.Reference
	// Credentials of the caller; nil: the machine's, if Machine is set, else none.
	Credentials *Credentials
	Machine     bool
	// May reports why an address may not be dialed; nil: each may. The machine's own request is
	// dialed all the same, and [Image].Public is false then.
	May func(netip.AddrPort) error
}

const (
	tries = 4
	// mostWait is the longest pause before a request is repeated.
	mostWait = time.Minute
	dialing  = 30 * time.Second
)

// session is a registry, or a mirror of it, as one request talks to it.
type session struct {
	client *http.Client
	base   *url.URL // up to and with the path of the repository
	ref    oci.Reference
	quiet  time.Duration // how long it may be
	closed *atomic.Bool  // not everybody would have got as far
	owner  bool          // it asks with what this machine may
}

func (c *Config) silence() time.Duration { return cmp.Or(c.Silence, time.Minute) }

// sources are where an image may come from, in the order in which they are asked.
func (c *Config) sources(ref oci.Reference) (all []*url.URL) {
	for _, m := range c.Mirrors[ref.Host] {
		all = append(all, m.JoinPath("/"))
	}
	host := ref.Host
	if host == "docker.io" {
		host = "registry-1.docker.io"
	}
	scheme := "https"
	if isOwn(host) {
		scheme = "http"
	}
	return append(all, &url.URL{Scheme: scheme, Host: host, Path: "/"})
}

// isOwn reports whether a host is this machine.
func isOwn(hostPort string) bool {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// open talks to one source.
func (c *Config) open(ctx context.Context, req *Request, at *url.URL) (*session, error) {
	plain := at.Scheme == "http"
	options := []name.Option{name.WeakValidation}
	if plain {
		options = append(options, name.Insecure)
	}
	reg, err := name.NewRegistry(at.Host, options...)
	if err != nil {
		return nil, &driver.InvalidError{Field: "image", Reason: fmt.Sprintf("is of the registry %.100q, which is no name of a host", at.Host)}
	}
	auth, err := c.credentials(req, at)
	if err != nil {
		return nil, err
	}
	may := req.May
	if c.isMirror(req, at) {
		may = nil
	}
	closed := new(atomic.Bool)
	closed.Store(auth != authn.Anonymous)
	inner, err := c.transport(at.Host, plain, may, req.Machine, closed)
	if err != nil {
		return nil, err
	}
	repo := strings.Trim(at.Path, "/")
	if repo != "" {
		repo += "/"
	}
	repo += req.Ref.Path
	rt, err := transport.NewWithContext(ctx, reg, auth, inner, []string{"repository:" + repo + ":pull"})
	if err != nil {
		inner.idle.CloseIdleConnections()
		return nil, explain(err, req.Ref, req.Machine)
	}
	s := &session{ref: req.Ref, base: &url.URL{Scheme: at.Scheme, Host: at.Host, Path: "/v2/" + repo}, quiet: c.silence(), closed: closed,
		owner: req.Machine}
	s.client = &http.Client{Transport: rt, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("the registry redirects again and again")
		}
		return nil
	}}
	return s, nil
}

func (s *session) close() { s.client.CloseIdleConnections() }

func (c *Config) isMirror(req *Request, at *url.URL) bool {
	return slices.ContainsFunc(c.Mirrors[req.Ref.Host], func(m *url.URL) bool { return m.Host == at.Host })
}

// credentials are those for a source. A mirror gets none of the registry's.
func (c *Config) credentials(req *Request, at *url.URL) (authn.Authenticator, error) {
	if req.Credentials != nil {
		if c.isMirror(req, at) {
			return authn.Anonymous, nil
		}
		return authn.FromConfig(authn.AuthConfig{Username: req.Credentials.User, Password: req.Credentials.Password}), nil
	}
	if !req.Machine || c.Keychain == nil {
		return authn.Anonymous, nil
	}
	host := at.Host
	if host == "registry-1.docker.io" {
		host = authn.DefaultAuthKey
	}
	auth, err := c.Keychain.Resolve(resource(host))
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w", at.Host, err)
	}
	return auth, nil
}

// resource is a registry, as keychains know it.
type resource string

func (r resource) String() string      { return string(r) }
func (r resource) RegistryStr() string { return string(r) }

// guarded is a transport that leaves the machine only as it may.
type guarded struct {
	idle  *http.Transport
	plain string // the only host that is spoken to without TLS; "": none
	own   bool   // it is this machine, and so may be others of its ports
	quiet time.Duration
}

// maxAnswer is the longest answer to what the library asks: a ping, or a token.
const maxAnswer = 64 << 10

// transport leads where may allows it; anywhere: elsewhere, too, and closed says so.
func (c *Config) transport(host string, plain bool, may func(netip.AddrPort) error, anywhere bool, closed *atomic.Bool) (*guarded, error) {
	d := &net.Dialer{Timeout: dialing}
	if may != nil {
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			err = may(netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
			if err != nil && anywhere {
				closed.Store(true)
				return nil
			}
			return err
		}
	}
	tls, err := c.tls(host)
	if err != nil {
		return nil, err
	}
	g := &guarded{idle: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: d.DialContext, TLSClientConfig: tls, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialing, ResponseHeaderTimeout: c.silence(), IdleConnTimeout: dialing, MaxResponseHeaderBytes: 256 << 10,
		DisableCompression: true,
	}}
	if may != nil { // what a proxy reaches, nobody could look at
		g.idle.Proxy = nil
		if anywhere {
			g.idle.Proxy = func(r *http.Request) (*url.URL, error) {
				u, err := http.ProxyFromEnvironment(r)
				if u != nil {
					closed.Store(true)
				}
				return u, err
			}
		}
	}
	if plain {
		g.plain, g.own = host, isOwn(host)
	}
	g.quiet = c.silence()
	return g, nil
}

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && r.URL.Host != g.plain && !(g.own && isOwn(r.URL.Host)) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("%s is plain HTTP, which only a registry on this machine and mirrors of the operator may speak", r.URL.Host)
	}
	r.Header.Set("User-Agent", "tend")
	resp, err := g.idle.RoundTrip(r)
	if err == nil && (resp.StatusCode >= 400 || r.Header.Get("Accept") == "") { // all that this package asks has one
		resp.Body = short(resp.Body, g.quiet)
	}
	return resp, err
}

// get asks for something below the repository, again if the server says that it may help.
func (s *session) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	u := *s.base
	u.Path += path
	for try := 1; ; try++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Accept", "*/*")
		for k, v := range header {
			r.Header[k] = v
		}
		resp, err := s.client.Do(r)
		again, after := err != nil && ctx.Err() == nil && isBroken(err), time.Duration(0)
		if err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500) {
			again, after = true, retryAfter(resp)
		}
		if !again || try == tries || after > mostWait {
			if err != nil {
				return nil, explain(err, s.ref, s.owner)
			}
			if resp.StatusCode >= 300 {
				defer resp.Body.Close()
				return nil, explain(transport.CheckError(resp, http.StatusOK, http.StatusPartialContent), s.ref, s.owner)
			}
			return resp, nil
		}
		if err == nil {
			_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
			_ = resp.Body.Close()
		}
		if err := pause(ctx, cmp.Or(after, time.Duration(try*try)*250*time.Millisecond)); err != nil {
			return nil, err
		}
	}
}

// isBroken reports a connection that broke, and not an answer.
func isBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.As(err, &op) && op.Op == "read"
}

func retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// explain makes of an error one for the person who asked.
func explain(err error, ref oci.Reference, owner bool) error {
	var t *transport.Error
	if errors.As(err, &t) {
		switch t.StatusCode {
		case http.StatusNotFound:
			return errtext.New(fmt.Sprintf("image '%s' not found: the image or tag does not exist in the registry", ref.Short()),
				driver.ErrNotFound)
		case http.StatusUnauthorized, http.StatusForbidden:
			advice := "give the user and the password of an account of " + ref.Host
			if owner {
				advice = "log in to " + ref.Host + " by docker login or podman login on the daemon's machine, as its user"
			}
			return &driver.InvalidError{Field: "image", Reason: fmt.Sprintf("access denied to '%s': "+
				"authentication required or insufficient permissions, or there is no such image; %s", ref.Short(), advice)}
		case http.StatusTooManyRequests:
			return errtext.New(fmt.Sprintf("%s has a limit of requests, which is reached; log in, use a mirror, or try again later", ref.Host),
				driver.ErrLimit)
		}
		return &FetchError{ref, fmt.Errorf("%s answered %d (%s)", ref.Host, t.StatusCode, http.StatusText(t.StatusCode))}
	}
	if _, ok := errors.AsType[*FetchError](err); ok {
		return err
	}
	if u, ok := errors.AsType[*url.Error](err); ok { // its URL may have a signature that admits whoever has it
		err = u.Err
	}
	text, _, _ := strings.Cut(err.Error(), "\n") // the library appends what a server of tokens said
	return &FetchError{ref, errtext.New(fmt.Sprintf("ask %s: %.500s", ref.Host, text), err)}
}

// FetchError says why an image could not be fetched: its registry, or the way there, is not as
// it has to be. It matches a *driver.InvalidError, as the one who asked has to name another, or
// to see to its registry.
type FetchError struct {
	Ref oci.Reference
	Err error
}

func (e *FetchError) Error() string {
	return "image '" + e.Ref.Short() + "' cannot be fetched: " + e.Err.Error()
}

func (e *FetchError) Unwrap() []error {
	return []error{&driver.InvalidError{Field: "image", Reason: "'" + e.Ref.Short() + "' cannot be fetched: " + e.Err.Error()}, e.Err}
}
