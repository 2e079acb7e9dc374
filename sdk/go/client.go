package tend

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

var errClosed = errors.New("the client was closed")

// Options for [Dial]. The zero value is useful.
type Options struct {
	// Token is sent with each request. "": none, for a server that needs none.
	Token string
	// HTTP1 keeps to HTTP/1.1, with a connection for each stream. By default
	// HTTP/2 is tried first (without TLS, too), then HTTP/1.1.
	HTTP1 bool
	// TLS for https URLs. Nil: the system's roots.
	TLS *tls.Config
	// DialContext opens connections. Nil: the network's. It is not used for
	// unix sockets.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Interceptors see each attempt of each call and stream, with its headers: for
	// identity, tracing and metrics. The first is the outermost.
	Interceptors []connect.Interceptor
	// Retry says when a lost connection is replaced.
	Retry Retry
	// Silence is how long a server may send nothing before its connection
	// counts as lost. 0: 45 s, three of the server's heartbeats.
	Silence time.Duration
	// Patience is how long a server may be unreachable, or unable to answer, before a
	// repeated call or stream gives up, and [Dial] at its first hello. If the server
	// answers, the client waits as long as the request takes. 0: 15 s for the hello, and
	// only Retry limits the rest.
	Patience time.Duration
	// Log receives reconnects at level debug. Nil: they are not logged.
	Log *slog.Logger
}

// Client speaks to one tend server. It implements [process.Manager], so code for local
// processes works with it too. All methods may be called concurrently.
type Client struct {
	url       string
	retry     Retry
	silence   time.Duration
	patient   time.Duration // Options.Patience
	log       *slog.Logger
	conns     *connections
	rpc       tendv1connect.ProcessServiceClient
	admin     tendv1connect.AdminServiceClient
	views     tendv1connect.ViewServiceClient
	sandboxes tendv1connect.SandboxServiceClient
	images    tendv1connect.ImageServiceClient
	files     tendv1connect.FileServiceClient
	cells     tendv1connect.CodeServiceClient
	kept      tendv1connect.ServiceServiceClient
	keys      tendv1connect.KeyServiceClient
	overview  tendv1connect.OverviewServiceClient
	server    *atomic.Pointer[tendv1.HelloResponse] // its last hello; nil: there was none
	listed    int                                   // processes that List accepts: maxListed but in tests

	// closed ends every stream when Close is called. It is the one context
	// that is kept: it belongs to the client and to no call.
	closed context.Context
	close  context.CancelFunc
	wg     *sync.WaitGroup // goroutines of streams, and of writes that were given up

	base    string               // of the API's URLs
	options connect.ClientOption // of all calls
	sandbox string               // ID of the one whose processes these are; "": the machine's
}

var _ process.Manager = (*Client)(nil)

// Dial connects to the server at url, http://HOST:PORT, https://HOST[:PORT] or
// unix:///PATH, and sends a hello. A URL with a user name, password, query or fragment
// is a [process.InvalidError]: Dial ignores no part of it. Dial tries once. Its error
// wraps [process.ErrUnavailable] if the server does not answer, and also [ErrNoDaemon]
// if none listens. Afterwards the client replaces lost connections automatically. Close
// it at the end.
func Dial(ctx context.Context, url string, opts Options) (*Client, error) {
	t, err := parseTarget(url)
	if err != nil {
		return nil, err
	}
	c := newClient(url, t, opts, !opts.HTTP1)
	err = c.hello(ctx)
	if err == nil {
		return c, nil
	}
	c.Close()
	if opts.HTTP1 || t.tls || connect.IsWireError(err) || unreached(err) || ctx.Err() != nil ||
		connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		return nil, c.dialError(ctx, err)
	}
	// Something answered that speaks no HTTP/2.
	c = newClient(url, t, opts, false)
	if err := c.hello(ctx); err != nil {
		c.Close()
		return nil, c.dialError(ctx, err)
	}
	return c, nil
}

func newClient(url string, t target, opts Options, http2 bool) *Client {
	c := &Client{url: url, retry: opts.Retry.withDefaults(), silence: opts.Silence, patient: opts.Patience,
		server: new(atomic.Pointer[tendv1.HelloResponse]),
		log:    cmp.Or(opts.Log, slog.New(slog.DiscardHandler)), listed: maxListed, wg: new(sync.WaitGroup), base: t.base}
	if c.silence <= 0 {
		c.silence = 3 * tendpb.Heartbeat
	}
	c.conns = &connections{url: url, token: opts.Token, now: t.transport(opts, http2, c.silence)}
	c.closed, c.close = context.WithCancel(context.Background())
	// No compression: the server is near, and output is large.
	c.options = connect.WithClientOptions(connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxResponse),
		connect.WithInterceptors(opts.Interceptors...))
	c.services(c.conns)
	return c
}

// services makes the clients of the services, over a transport.
func (c *Client) services(tr http.RoundTripper) {
	client := &http.Client{Transport: tr, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		return http.ErrUseLastResponse // which RoundTrip has refused
	}}
	c.rpc = tendv1connect.NewProcessServiceClient(client, c.base, c.options)
	c.admin = tendv1connect.NewAdminServiceClient(client, c.base, c.options)
	c.views = tendv1connect.NewViewServiceClient(client, c.base, c.options)
	c.files = tendv1connect.NewFileServiceClient(client, c.base, c.options)
	c.cells = tendv1connect.NewCodeServiceClient(client, c.base, c.options)
	c.kept = tendv1connect.NewServiceServiceClient(client, c.base, c.options)
	c.keys = tendv1connect.NewKeyServiceClient(client, c.base, c.options)
	c.overview = tendv1connect.NewOverviewServiceClient(client, c.base, c.options)
	c.sandboxes = tendv1connect.NewSandboxServiceClient(client, c.base, c.options)
	c.images = tendv1connect.NewImageServiceClient(client, c.base, c.options)
}

// in returns a client for the processes of a sandbox, over the same connections. It
// ends with c.
func (c *Client) in(id string) *Client {
	in := *c
	in.sandbox = id
	in.services(inSandbox{c.conns, id})
	return &in
}

// inSandbox says with each request which sandbox it is for.
type inSandbox struct {
	http.RoundTripper
	id string
}

func (t inSandbox) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(tendpb.SandboxHeader, t.id)
	return t.RoundTripper.RoundTrip(r)
}

func (c *Client) hello(ctx context.Context) error {
	limit := 15 * time.Second
	if c.patient > 0 {
		limit = c.patient
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := c.rpc.Hello(ctx, connect.NewRequest(&tendv1.HelloRequest{}))
	if err == nil {
		c.server.Store(resp.Msg)
	}
	return err
}

// unreached reports whether no connection was made at all.
func unreached(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func (c *Client) dialError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[*RedirectError](err); ok {
		return e
	}
	if c.notTend(err) {
		return fmt.Errorf("%s answers, but it is no tend server: %s", c.url, tendpb.CleanText(err.Error()))
	}
	if known := tendpb.FromError(err); errors.Is(known, process.ErrPermission) {
		return known
	}
	if unreached(err) && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w: the socket admits the user of the server and root alone", c.url, process.ErrPermission)
	}
	why := process.ErrUnavailable
	if unreached(err) && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR)) {
		why = ErrNoDaemon
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return fmt.Errorf("%s: %s: %w", c.url, tendpb.CleanText(e.Message()), why)
	}
	return fmt.Errorf("%s: %w: %w", c.url, err, why)
}

// notTend reports whether the answer came from a program that is no tend server. A
// proxy that says that it cannot reach its server is not taken for one.
func (c *Client) notTend(err error) bool {
	if connect.IsWireError(err) {
		return connect.CodeOf(err) == connect.CodeUnimplemented
	}
	if c.conns.ours.Load() {
		return false
	}
	switch c.conns.answered.Load() {
	case 0:
		return strings.Contains(err.Error(), "malformed HTTP")
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return false
	}
	return true
}

// Close ends all streams and connections of the client, and waits until they have
// ended. It does not affect processes.
func (c *Client) Close() error {
	if c.sandbox != "" {
		return nil // its connections are another's
	}
	c.close()
	c.wg.Wait()
	c.conns.close()
	return nil
}

// URL returns the URL that the client was created with.
func (c *Client) URL() string { return c.url }

// Start implements [process.Manager]. A spec without an ID gets a new one, so that a
// repeated call after a lost answer starts nothing twice.
func (c *Client) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	return c.startAs(ctx, spec, false)
}

// StartUnique is Start, unless another process that runs has the name of the spec:
// [process.ErrExists]. Servers before version 0.1.0 do not look.
func (c *Client) StartUnique(ctx context.Context, spec process.Spec) (process.Process, error) {
	return c.startAs(ctx, spec, true)
}

func (c *Client) startAs(ctx context.Context, spec process.Spec, unique bool) (process.Process, error) {
	info, err := c.start(ctx, spec, unique)
	if err != nil {
		return nil, err
	}
	return &remote{client: c, id: info.ID}, nil
}

func (c *Client) start(ctx context.Context, spec process.Spec, unique bool) (process.Info, error) {
	if spec.ID == "" {
		spec.ID = process.NewID()
	}
	// Said here, a wrong spec costs no round trip.
	if err := spec.Validate(); err != nil {
		return process.Info{}, err
	}
	if err := tendpb.CheckText(&spec); err != nil {
		return process.Info{}, err
	}
	req := &tendv1.StartRequest{Spec: tendpb.Spec(&spec), UniqueName: unique, EnvOf: string(process.IsEnvOf(ctx))}
	var info process.Info
	err := c.call(ctx, unary(c.rpc.Start, req, func(m *tendv1.StartResponse) (err error) {
		info, err = toInfo(m.GetInfo(), spec.ID)
		return err
	}))
	return info, err
}

// Get implements [process.Manager].
func (c *Client) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	info, err := c.info(ctx, sel)
	if err != nil {
		return nil, err
	}
	return &remote{client: c, id: info.ID}, nil
}

func (c *Client) info(ctx context.Context, sel process.Selector) (process.Info, error) {
	var info process.Info
	err := c.call(ctx, unary(c.rpc.Get, &tendv1.GetRequest{Process: tendpb.Selector(sel)}, func(m *tendv1.GetResponse) (err error) {
		info, err = toInfo(m.GetInfo(), sel.ID)
		return err
	}))
	return info, err
}

// List implements [process.Manager].
func (c *Client) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	req := tendpb.Filter(f)
	return pages(c, "processes", &req.After, func() (page []process.Info, next string, err error) {
		err = c.call(ctx, unary(c.rpc.List, req, func(m *tendv1.ListResponse) error {
			page, next = make([]process.Info, 0, len(m.GetProcesses())), m.GetNext()
			for _, m := range m.GetProcesses() {
				info, err := toInfo(m, "")
				if err != nil {
					return err
				}
				page = append(page, info)
			}
			return nil
		}))
		return page, next, err
	})
}
