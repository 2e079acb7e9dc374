package tend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// SandboxAccess gives clients of other protocols access to one sandbox. Its holder
// reaches no other sandbox, and nothing of tend's own API.
type SandboxAccess struct {
	// Token is the token for envd's protocol, in the header X-Access-Token.
	Token string
	// TrafficToken gives access to the ports of a sandbox that is not public, in the
	// header E2b-Traffic-Access-Token.
	TrafficToken string
	// Domains below which PORT-ID.DOMAIN is a port of the sandbox.
	Domains []string
}

// Access returns the credentials with which other clients access the sandbox.
func (s *Sandbox) Access(ctx context.Context) (a SandboxAccess, err error) {
	err = s.about(ctx, func(id string) error {
		req := &tendv1.SandboxAccessRequest{Sandbox: id}
		return s.client.call(ctx, unary(s.client.sandboxes.Access, req, func(m *tendv1.SandboxAccessResponse) error {
			a = SandboxAccess{m.GetToken(), m.GetTrafficToken(), m.GetDomains()}
			return nil
		}))
	})
	return a, knownCall(err, "is")
}

// URL returns the HTTP address of a port in the sandbox: http://PORT-ID.DOMAIN, or
// below localhost if the server has no domain and the client reaches it by a loopback
// address. If there is no such address, the error is [process.ErrUnsupported]; Dial
// needs none.
func (s *Sandbox) URL(ctx context.Context, port int) (string, error) {
	if strings.HasPrefix(s.client.url, "unix:") {
		return "", fmt.Errorf("%w: by a unix socket there is no URL of a port; connect by http://, or use Dial", process.ErrUnsupported)
	}
	return s.URLAt(ctx, s.client.base, port)
}

// URLAt is URL for who reaches the server at a base URL, such as that of [Status].
func (s *Sandbox) URLAt(ctx context.Context, base string, port int) (string, error) {
	if err := checkPort(port); err != nil {
		return "", err
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%w: the daemon has no TCP port, as with tend serve; Sandbox.Dial needs none", process.ErrUnsupported)
	}
	a, err := s.Access(ctx)
	if err != nil {
		return "", err
	}
	id, err := s.find(ctx)
	if err != nil {
		return "", err
	}
	domain, at := "", u.Port()
	switch ip := net.ParseIP(u.Hostname()); {
	case len(a.Domains) > 0:
		domain = a.Domains[0]
	case u.Hostname() == "localhost", ip.IsLoopback():
		domain = "localhost"
	default:
		return "", fmt.Errorf("%w: the daemon has no domain for ports, as with tend serve --domain; Sandbox.Dial needs none",
			process.ErrUnsupported)
	}
	host := fmt.Sprintf("%d-%s.%s", port, id, domain)
	if at != "" {
		host += ":" + at
	}
	return u.Scheme + "://" + host, nil
}

func checkPort(port int) error {
	if port < 1 || port > 65535 {
		return &process.InvalidError{Field: "port", Reason: fmt.Sprintf("is %d; 1 to 65535 are allowed", port)}
	}
	return nil
}

// Dial connects to a TCP port that a program in the sandbox listens on, through the
// server. The connection has CloseWrite. The connection ends with the server that
// carries it. The sandbox is created or started first, as for a process.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := checkPort(port); err != nil {
		return nil, err
	}
	c, err := s.Client(ctx)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	err = c.repeat(ctx, "dial port "+strconv.Itoa(port), never, func(*attempts) (err error) {
		conn, err = c.dialPort(ctx, port)
		return err
	})
	return conn, knownCall(err, "is")
}

// dialTime is how long the server and the program may take to answer together.
const dialTime = 30 * time.Second

func (c *Client) dialPort(ctx context.Context, port int) (_ net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	query := url.Values{"sandbox": {c.sandbox}, "port": {strconv.Itoa(port)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+tendpb.DialPath+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", tendpb.DialProtocol)
	if token := c.conns.token; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	raw, err := c.conns.raw(ctx, req.URL)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	defer func() {
		if err != nil {
			raw.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	if err := req.Write(raw); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	br := bufio.NewReader(raw)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, refusal(resp)
	}
	if !stop() {
		return nil, ctx.Err()
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return &portConn{Conn: raw, ahead: br}, nil
}

// refusal reads an error that the server answered with: a JSON value with a code and a
// message, as for each call.
func refusal(resp *http.Response) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return refused(resp.StatusCode, resp.Status, body)
}

// refused is the error that a body has.
func refused(status int, words string, body []byte) error {
	var said struct {
		Code    connect.Code `json:"code"`
		Message string       `json:"message"`
	}
	text := fmt.Sprintf("the server answers %s", words)
	if json.Unmarshal(body, &said) == nil && said.Message != "" {
		text = tendpb.CleanText(said.Message)
	}
	switch {
	case status == http.StatusUnauthorized || said.Code == connect.CodePermissionDenied:
		return errtext.New(text, process.ErrPermission)
	case said.Code == connect.CodeNotFound:
		return errtext.New(text, process.ErrNotFound)
	case said.Code == connect.CodeResourceExhausted:
		return errtext.New(text, process.ErrLimit)
	case said.Code == connect.CodeAborted:
		return errtext.New(text, process.ErrLagged)
	case said.Code == connect.CodeUnavailable:
		return connect.NewError(connect.CodeUnavailable, errors.New(text))
	case said.Code == connect.CodeUnimplemented, status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return errtext.New(text, process.ErrUnsupported)
	case said.Code == 0:
		return strange("%s", text)
	}
	return errors.New(text)
}

// portConn is a connection to a port; what came with the server's answer is read first.
type portConn struct {
	net.Conn
	ahead *bufio.Reader
}

func (c *portConn) Read(b []byte) (int, error) {
	if c.ahead.Buffered() > 0 {
		return c.ahead.Read(b)
	}
	return c.Conn.Read(b)
}

// CloseWrite ends what this side sends; the other side may go on.
func (c *portConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
