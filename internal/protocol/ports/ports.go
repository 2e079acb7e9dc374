// Package ports serves what programs in sandboxes listen on: HTTP, WebSocket and
// server-sent events of each port, as E2B's clients reach them.
//
//	http://3000-ID.DOMAIN/…, http://3000-ID.localhost:49983/…
//	any name, with the headers E2b-Sandbox-Id: ID and E2b-Sandbox-Port: 3000
//
// A request is passed on with its host name, without the credentials for this server.
// envd's own port is served by its face, not here. On the host names of sandboxes nothing
// else of the server can be reached: pages there can only call the sandbox.
//
// As with E2B, everyone who knows the ID can reach the ports, unless the sandbox is not
// public (driver.Network): then a request needs the token of its ports, or the cookie that
// a link of tend's own page has set. If no program listens, the answer is 502, a page for a
// browser and JSON for other clients.
package ports

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/route"
)

const trafficHeader = "E2b-Traffic-Access-Token"

// hopHeader marks requests that this server has passed on: if a sandbox has the machine's
// network, one of its ports is the server's own.
const hopHeader = "Tend-Passed-On"

// Config of the part. Sandboxes is required.
type Config struct {
	Sandboxes *route.Router
	// Secret creates the tokens of ports. nil: ports of sandboxes that are not public are
	// closed.
	Secret *protocol.Secret
	// Token of the server, which is never passed on. nil: none.
	Token func() protocol.Token
	// VisitorLasts reports whether the login lasts that a ticket was made for. nil: it does.
	VisitorLasts func(by string) bool
	// Proxies in front of this server.
	Proxies protocol.Proxies
	// Budget of what is held for clients; nil: no bound.
	Budget *budget.Budget
	Log    *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
	// Own answers for a port of a sandbox in place of a program there: it returns the handler, or nil if
	// the port is a program's. It is called after the caller's permission was checked. nil: all ports are programs'.
	Own func(t *route.Target) http.Handler
	// Handshake bounds the TLS handshake with a program in a sandbox, on ports that are
	// declared to speak TLS. 0: 30 seconds.
	Handshake time.Duration
}

const defaultHandshake = 30 * time.Second

// Ports is the part. Close it when the server stops.
type Ports struct {
	sandboxes *route.Router
	secret    *protocol.Secret
	proxies   protocol.Proxies
	token     func() protocol.Token
	hop       protocol.Token // the value of hopHeader
	log       *slog.Logger
	budget    *budget.Budget
	// kept reuses connections, once does not: a sandbox with an idle TTL counts new
	// connections as use.
	kept, once http.RoundTripper
	idle       func()
	handshake  time.Duration
	own        func(t *route.Target) http.Handler

	now          func() time.Time
	visitorLasts func(by string) bool
	tickets      tickets
	logins       protocol.Logins
}

// New returns the part.
func New(c Config) *Ports {
	p := &Ports{
		visitorLasts: c.VisitorLasts, proxies: c.Proxies,
		sandboxes: c.Sandboxes, secret: c.Secret, token: c.Token, hop: protocol.Token(rand.Text()), log: c.Log, budget: c.Budget, now: c.Now,
		handshake: cmp.Or(c.Handshake, defaultHandshake), own: c.Own,
	}
	if p.token == nil {
		p.token = func() protocol.Token { return "" }
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.visitorLasts == nil {
		p.visitorLasts = func(string) bool { return true }
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	kept := &http.Transport{DialContext: p.dial, DialTLSContext: p.dialTLS,
		MaxResponseHeaderBytes: protocol.MaxAnswerHeader, MaxIdleConns: 1000, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		DisableCompression: true}
	p.kept, p.idle = kept, kept.CloseIdleConnections
	p.once = &http.Transport{DialContext: p.dial, DialTLSContext: p.dialTLS,
		MaxResponseHeaderBytes: protocol.MaxAnswerHeader, DisableKeepAlives: true, DisableCompression: true}
	return p
}

var _ module.Hoster = (*Ports)(nil)

// Name implements [module.Part].
func (p *Ports) Name() string { return "ports" }

// Close closes idle connections.
func (p *Ports) Close() error {
	p.idle()
	return nil
}

// Hosts implements [module.Hoster].
func (p *Ports) Hosts(r *http.Request) (http.Handler, bool) {
	port, byHost, named := p.sandboxes.Named(r)
	if p.hop.Matches(r.Header.Get(hopHeader)) { // it names no sandbox any more where headers did
		return http.HandlerFunc(p.serve), byHost
	}
	if !named || port == route.EnvdPort {
		return nil, byHost
	}
	return http.HandlerFunc(p.serve), byHost
}

// refusal is an answer of this part itself, in the original's form.
type refusal struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

func (p *Ports) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		refuse(w, r, &refusal{Message: "Ports of sandboxes are no proxies", Code: http.StatusMethodNotAllowed})
		return
	}
	if p.hop.Matches(r.Header.Get(hopHeader)) {
		refuse(w, r, &refusal{Message: "This port is the server's own", Code: http.StatusLoopDetected})
		return
	}
	t, err := p.sandboxes.Of(r)
	if unknown, ok := errors.AsType[*route.UnknownError](err); ok {
		refuse(w, r, &refusal{SandboxID: unknown.ID, Message: "The sandbox was not found", Code: http.StatusBadGateway})
		return
	}
	if err == nil && t.ID == "" { // impossible: the request names one
		err = errors.New("the request names no sandbox")
	}
	if err != nil {
		p.log.Warn("request failed", "face", "ports", "err", err)
		refuse(w, r, &refusal{Message: "The sandbox cannot be reached", Code: http.StatusInternalServerError})
		return
	}
	id := string(t.ID)
	var lasts func() bool // nil: as long as the request
	inside := route.Inside(r.Context()) != ""
	if !inside && !t.Info.Network.Public && !p.secret.TrafficToken(id).Matches(r.Header.Get(trafficHeader)) {
		by, visits := p.visits(r, id)
		switch {
		case t.ByHost && r.URL.Path == openPath:
			p.open(w, r, id)
			return
		case !t.ByHost || !visits:
			refuse(w, r, &refusal{SandboxID: id, Message: "The ports of this sandbox need its traffic access token in the header e2b-traffic-access-token", Port: t.Port, Code: http.StatusForbidden})
			return
		}
		lasts = func() bool { return p.visitorLasts(by) }
	}
	if err := t.Awake(r.Context()); err != nil {
		p.log.Warn("sandbox not woken", "face", "ports", "id", id, "err", err)
		refuse(w, r, &refusal{SandboxID: id, Message: "The sandbox was not found", Code: http.StatusBadGateway})
		return
	}
	of := budget.Sandbox(t.ID)
	budget.Of(r.Context()).For(of)
	held := p.budget.Charge(of)
	defer held.Release()
	if err := held.Add(pieceSize); err != nil {
		refuse(w, r, &refusal{SandboxID: id, Message: err.Error(), Port: t.Port, Code: http.StatusServiceUnavailable})
		return
	}
	var passes http.Handler
	if p.own != nil {
		passes = p.own(&t)
	}
	if passes == nil && inside { // its way would lead here again
		passes = http.NotFoundHandler()
	}
	if passes == nil {
		passes = p.proxy(&t, isProgram(r.Header), held)
	}
	if lasts != nil {
		p.logins.Serve(passes, w, r, lasts)
		return
	}
	passes.ServeHTTP(w, r)
}

const closedPort = "The sandbox is running but port is not open"

// closedError: no program listens.
type closedError struct{ error }

// noTLSError: the program does not speak TLS.
type noTLSError struct{ error }

// dial connects to a port of a sandbox; the address is ID:port.
func (p *Ports) dial(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := p.connect(ctx, address)
	if err != nil {
		return nil, err
	}
	return protocol.HeadConn(c), nil
}

// dialTLS connects to a port with TLS. Programs in sandboxes have their own certificates. Only the
// sandbox can answer a connection into it, so they need not be verified.
func (p *Ports) dialTLS(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := p.connect(ctx, address)
	if err != nil {
		return nil, err
	}
	id, _, _ := strings.Cut(address, ":")
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: id})
	// A dial continues after the client has left: without a bound, a silent program would
	// hold each such connection for ever.
	ctx, cancel := context.WithTimeout(ctx, p.handshake)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		if _, other := errors.AsType[tls.RecordHeaderError](err); other || errors.Is(err, context.DeadlineExceeded) {
			return nil, noTLSError{err}
		}
		return nil, err
	}
	return protocol.HeadConn(secure), nil
}

func (p *Ports) connect(ctx context.Context, address string) (net.Conn, error) {
	id, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	t, err := p.sandboxes.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := t.Dial(ctx, port)
	if err != nil {
		return nil, closedError{err}
	}
	return c, nil
}

// isProgram reports whether a request is no browser's. The cookies that come back to a
// program are its session with what is in the sandbox; in a browser they would be cookies of
// this server's own origin.
func isProgram(h http.Header) bool {
	return h.Get("Origin") == "" && h.Get("Sec-Fetch-Site") == "" && !strings.HasPrefix(h.Get("User-Agent"), "Mozilla/")
}

// proxy passes requests to a port of a sandbox. program says whether the client is one
// ([isProgram]), and held is charged for what is held of the answer.
func (p *Ports) proxy(t *route.Target, program bool, held *budget.Charge) *httputil.ReverseProxy {
	transport := p.kept
	if t.Info.IdleTTL > 0 {
		transport = p.once
	}
	// Answers without a length, and events, are passed on at once. A short answer with a
	// length is sent in one piece with its headers.
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			port := strconv.Itoa(t.Port)
			pr.Out.URL.Scheme, pr.Out.URL.Host = schemeOf(t.Info.Notes, port), net.JoinHostPort(string(t.ID), port)
			pr.Out.Host = pr.In.Host
			if mask := t.Info.Notes[protocol.NoteMaskHost]; mask != "" {
				pr.Out.Host = strings.ReplaceAll(mask, protocol.MaskPort, port)
			}
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // what Go cannot read, such as ;, is the program's to read
			p.proxies.Forward(pr)
			pr.Out.Header.Set(hopHeader, string(p.hop))
			p.dropSecrets(pr.Out.Header, string(t.ID))
		},
		ModifyResponse: func(res *http.Response) error {
			if t.ByHost {
				protocol.KeepToName(res.Header)
			} else {
				// This is the server's own origin, and the answer is a stranger's.
				protocol.Inert(res.Header)
				protocol.DropHostWide(res.Header)
				if !program {
					res.Header.Del("Set-Cookie")
				}
				res.Header.Set("Cache-Control", "no-store")
			}
			return nil
		},
		Transport: protocol.Heads(transport, held),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client has left
			}
			message, code := "The program in the sandbox ended the connection", http.StatusBadGateway
			if busy, ok := errors.AsType[*budget.BusyError](err); ok {
				message, code = busy.Error(), http.StatusServiceUnavailable
			} else if _, closed := errors.AsType[closedError](err); closed {
				message = closedPort
			} else if _, plain := errors.AsType[noTLSError](err); plain {
				message = "The program in the sandbox did not begin TLS, which httpsPorts says of its port"
			} else if protocol.HeaderTooLarge(err) {
				message = fmt.Sprintf("The program in the sandbox sent more than %d KiB of headers", protocol.MaxAnswerHeader>>10)
			} else if errors.Is(err, protocol.ErrAnswerLines) {
				message = "The program in the sandbox sent " + protocol.ErrAnswerLines.Error()
			}
			refuse(w, r, &refusal{SandboxID: string(t.ID), Message: message, Port: t.Port, Code: code})
		},
		FlushInterval: patience,
		BufferPool:    pieces{},
		ErrorLog:      slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
}

// schemeOf returns the protocol of the program on a port of a sandbox.
func schemeOf(notes map[string]string, port string) string {
	for p := range strings.SplitSeq(notes[protocol.NoteHTTPSPorts], ",") {
		if p == port {
			return "https"
		}
	}
	return "http"
}

// patience is how long a piece of an answer with a known length may wait for the next one,
// so that both are sent together.
const patience = 2 * time.Millisecond

// pieces lends the buffers for answers. Without it, a short answer costs as much memory as
// a piece of a long one.
type pieces struct{}

const pieceSize = 64 << 10

var pieceArrays = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// Get implements httputil.BufferPool.
func (pieces) Get() []byte { return pieceArrays.Get().(*[pieceSize]byte)[:] }

// Put implements httputil.BufferPool.
func (pieces) Put(b []byte) { pieceArrays.Put((*[pieceSize]byte)(b)) }

// dropSecrets removes from a request the credentials for this server. A key or token that
// is not ours belongs to the program.
func (p *Ports) dropSecrets(h http.Header, id string) {
	for _, name := range []string{"E2b-Sandbox-Id", "E2b-Sandbox-Port", trafficHeader} {
		h.Del(name)
	}
	protocol.DropOwnCookies(h)
	var ours []protocol.Token // made once one is shown
	for _, name := range []string{"X-Api-Key", "X-Access-Token", "Authorization"} {
		for _, value := range h.Values(name) {
			if ours == nil {
				token := p.token()
				ours = []protocol.Token{token, protocol.E2BKey(token), p.secret.SandboxToken(id), p.secret.TrafficToken(id)}
			}
			_, credential, _ := strings.Cut(value, " ")
			user, password, _ := (&http.Request{Header: http.Header{"Authorization": {value}}}).BasicAuth()
			for _, t := range ours {
				if t.Matches(value) || t.Matches(strings.TrimSpace(credential)) || t.Matches(password) || t.Matches(user) {
					h.Del(name)
				}
			}
		}
	}
}

// page is shown to a person if no program listens. It is no template: one alone makes the
// linker keep all exported methods of the program.
func (e *refusal) page() string {
	where, hint := "Sandbox <code>"+html.EscapeString(e.SandboxID)+"</code>", ""
	if e.Port != 0 {
		where += fmt.Sprintf(", port <code>%d</code>", e.Port)
	}
	switch {
	case e.Code == http.StatusBadGateway && e.Port != 0:
		hint = "<p>Start a program in the sandbox that listens on this port, and load the page again.</p>\n"
	case e.Code == http.StatusForbidden:
		hint = "<p>Open the port from tend's page (<code>tend ui</code>): that lets this browser in.</p>\n"
	}
	return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>` + html.EscapeString(e.title()) + `</title></head>
<body style="font-family: sans-serif; max-width: 40em; margin: 4em auto">
<h1>` + html.EscapeString(e.Message) + `</h1>
<p>` + where + `</p>
` + hint + `</body></html>
`
}

// title of the page, as the original's where a port is closed.
func (e *refusal) title() string {
	if e.Message == closedPort {
		return "Closed Port Error"
	}
	return e.Message
}

// isBrowser reports whether to answer with a page: as in the original, to a browser that
// does not ask for another type.
func isBrowser(h http.Header) bool {
	accept := h.Get("Accept")
	return strings.Contains(accept, "text/html") || strings.HasPrefix(h.Get("User-Agent"), "Mozilla/") && (accept == "" || accept == "*/*")
}

func refuse(w http.ResponseWriter, r *http.Request, e *refusal) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if e.Code == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	if isBrowser(r.Header) {
		protocol.Inert(h)
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(e.Code)
		_, _ = io.WriteString(w, e.page()) // fails when the client has left
		return
	}
	text, err := json.Marshal(e)
	if err != nil { // impossible: strings and numbers
		text = fmt.Appendf(nil, `{"code":%d}`, e.Code)
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(e.Code)
	_, _ = w.Write(text) // fails when the client has left
}
