package langsmith_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits for things that must happen; it is no measurement.
const patience = 2 * time.Minute

// server is a face behind a real HTTP server on a loopback port, with one box.
type server struct {
	t       *testing.T
	url     string
	manager process.Manager
	driver  *host.Driver
	face    *langsmith.Face
	mux     *http.ServeMux
	box     driver.Info
	dir     string
	key     string // sent with requests
}

func serve(t *testing.T, change func(*langsmith.Config)) *server {
	t.Helper()
	s := &server{t: t, manager: testkeeper.New(t), dir: t.TempDir()}
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(s.dir, "boxes"), Manager: s.manager}))(t)
	s.driver = d
	box := proctest.Value(d.Create(t.Context(), driver.Spec{Name: "box"}))(t)
	s.box = proctest.Value(box.Info(t.Context()))(t)
	s.start(change)
	return s
}

// start serves with a fresh face, as after a restart of the server.
func (s *server) start(change func(*langsmith.Config)) {
	s.t.Helper()
	cfg := langsmith.Config{Driver: s.driver, Dir: filepath.Join(s.dir, "langsmith")}
	if change != nil {
		change(&cfg)
	}
	f := proctest.Value(langsmith.New(cfg))(s.t)
	mux := http.NewServeMux()
	proctest.Must(s.t, module.Mount(mux, f, nil))
	hs := httptest.NewServer(mux)
	s.face, s.mux, s.url = f, mux, hs.URL
	s.t.Cleanup(func() {
		f.Close()
		hs.CloseClientConnections()
		hs.Close()
	})
}

// data is the dataplane_url of the box.
func (s *server) data() string { return s.url + "/langsmith/" + string(s.box.ID) }

// call makes a request and returns the status and the body.
func (s *server) call(method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	res := s.do(method, path, body, headers...)
	defer res.Body.Close()
	text := proctest.Value(io.ReadAll(res.Body))(s.t)
	return res.StatusCode, strings.TrimSpace(string(text))
}

// do makes a request; headers are "Name: value".
func (s *server) do(method, path, body string, headers ...string) *http.Response {
	s.t.Helper()
	if !strings.HasPrefix(path, "http") {
		path = s.url + path
	}
	req := proctest.Value(http.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body)))(s.t)
	if s.key != "" {
		req.Header.Set("X-Api-Key", s.key)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res := proctest.Value(http.DefaultTransport.(*http.Transport).RoundTrip(req))(s.t)
	s.t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return res
}

// frame is a message of the server.
type frame struct {
	Type      string `json:"type"`
	CommandID string `json:"command_id,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Data      string `json:"data,omitempty"`
	Offset    int64  `json:"offset"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	ErrorType string `json:"error_type,omitempty"`
	Error     string `json:"error,omitempty"`
}

// wsConn is a client's execution WebSocket.
type wsConn struct {
	*websocket.Conn
	t *testing.T
}

func (s *server) dial() *wsConn {
	s.t.Helper()
	c, _, err := websocket.Dial(s.t.Context(), s.data()+"/execute/ws", &websocket.DialOptions{HTTPHeader: http.Header{"X-Api-Key": {s.key}}})
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetReadLimit(1 << 20) // what Python's websockets accepts
	s.t.Cleanup(func() { c.CloseNow() })
	return &wsConn{c, s.t}
}

func (c *wsConn) send(v any) {
	c.t.Helper()
	b, ok := v.(string)
	if !ok {
		text := proctest.Value(json.Marshal(v))(c.t)
		b = string(text)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	proctest.Must(c.t, c.Write(ctx, websocket.MessageText, []byte(b)))
}

// next reads a frame; ok is false when the connection was closed.
func (c *wsConn) next() (frame, websocket.StatusCode, bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	kind, b, err := c.Read(ctx)
	if err != nil {
		if ctx.Err() != nil {
			c.t.Fatal("no frame came:", err)
		}
		return frame{}, websocket.CloseStatus(err), false
	}
	var f frame
	if err := json.Unmarshal(b, &f); err != nil || kind != websocket.MessageText {
		c.t.Fatalf("frame %.200q: %v", b, err)
	}
	return f, 0, true
}

type object map[string]any

// execute starts a command and reads its started frame.
func (s *server) execute(m object) (*wsConn, frame) {
	s.t.Helper()
	m["type"] = "execute"
	return s.open(m)
}

func (s *server) reconnect(id string, stdout, stderr int64) (*wsConn, frame) {
	s.t.Helper()
	return s.open(object{"type": "reconnect", "command_id": id, "stdout_offset": stdout, "stderr_offset": stderr})
}

func (s *server) open(m object) (*wsConn, frame) {
	s.t.Helper()
	c := s.dial()
	c.send(m)
	f, code, ok := c.next()
	if !ok {
		s.t.Fatalf("closed with %d before the first frame", code)
	}
	return c, f
}

// outcome is all that came after the started frame.
type outcome struct {
	Stdout, Stderr string
	Exit           *int
	ErrorType      string
	Error          string
	Code           websocket.StatusCode
}

// rest reads to the end, and holds the offsets to the contract.
func (c *wsConn) rest(stdout, stderr int64) outcome {
	c.t.Helper()
	var o outcome
	var out, err bytes.Buffer
	for {
		f, code, ok := c.next()
		if !ok {
			o.Stdout, o.Stderr, o.Code = out.String(), err.String(), code
			return o
		}
		if o.Exit != nil || o.ErrorType != "" {
			c.t.Fatalf("%+v came after the end", f)
		}
		switch f.Type {
		case "stdout":
			if f.Offset != stdout+int64(out.Len()) {
				c.t.Fatalf("stdout goes on at %d, want %d", f.Offset, stdout+int64(out.Len()))
			}
			out.WriteString(f.Data)
		case "stderr":
			if f.Offset != stderr+int64(err.Len()) {
				c.t.Fatalf("stderr goes on at %d, want %d", f.Offset, stderr+int64(err.Len()))
			}
			err.WriteString(f.Data)
		case "exit":
			o.Exit = f.ExitCode
		case "error":
			o.ErrorType, o.Error = f.ErrorType, f.Error
		default:
			c.t.Fatalf("unexpected frame %+v", f)
		}
	}
}

// until reads stdout until it ends with the text.
func (c *wsConn) until(text string) string {
	c.t.Helper()
	var got string
	for !strings.HasSuffix(got, text) {
		f, code, ok := c.next()
		if !ok || f.Type != "stdout" {
			c.t.Fatalf("after %q came %+v (close code %d), before %q", got, f, code, text)
		}
		got += f.Data
	}
	return got
}

func exit(code int) *int { return &code }
