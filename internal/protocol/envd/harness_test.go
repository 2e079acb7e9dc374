package envd_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/protocol/envd/envdfs"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits for things that must happen; it is no measurement.
const patience = 2 * time.Minute

// server is a face behind a real HTTP server on a loopback port.
type server struct {
	t       *testing.T
	addr    string
	manager process.Manager
	face    *envd.Face
	conns   atomic.Int64 // that net/http serves, or waits on
}

func serve(t *testing.T, change func(*envd.Config)) *server {
	t.Helper()
	s := &server{t: t, manager: testkeeper.New(t)}
	cfg := envd.Config{Sandboxes: &route.Router{Default: host.NewMachine(s.manager)}, DefaultWorkdir: t.TempDir()}
	if change != nil {
		change(&cfg)
	}
	f := proctest.Value(envd.New(cfg))(t)
	s.face = f
	mux := http.NewServeMux()
	files := envdfs.New(envdfs.Config{Tokens: f.Tokens, Wrap: f.Wrap, Files: f.Files, DefaultUser: f.DefaultUser})
	for _, half := range []module.Router{f, files} {
		proctest.Must(t, module.Mount(mux, half, nil))
	}
	inner := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := protocol.NewListener(inner)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	hs := &http.Server{Handler: mux, ConnContext: l.ConnContext, Protocols: protocols, ReadHeaderTimeout: patience}
	hs.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.conns.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.conns.Add(-1)
		}
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	s.addr = inner.Addr().String()
	t.Cleanup(func() {
		f.Close()
		files.Close()
		hs.Close()
		<-served
	})
	return s
}

// conn is a client's connection, speaking raw HTTP/1.1.
type conn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (s *server) dial() *conn {
	s.t.Helper()
	c := proctest.Value(net.Dial("tcp", s.addr))(s.t)
	s.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return &conn{t: s.t, Conn: c, r: bufio.NewReaderSize(c, 64<<10)}
}

// send writes a request. Headers are "Name: value" lines.
func (c *conn) send(method, path string, headers []string, body []byte) {
	c.t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, path)
	host := false
	for _, h := range headers {
		host = host || strings.HasPrefix(h, "Host:")
		b.WriteString(h + "\r\n")
	}
	if !host {
		b.WriteString("Host: localhost\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	proctest.Value(c.Write(b.Bytes()))(c.t)
}

func (c *conn) response() *http.Response {
	c.t.Helper()
	res := proctest.Value(http.ReadResponse(c.r, nil))(c.t)
	return res
}

// call makes one unary call in JSON and returns status and body.
func (s *server) call(method, body string, headers ...string) (int, string) {
	s.t.Helper()
	c := s.dial()
	c.send("POST", "/process.Process/"+method, append(headers, "Content-Type: application/json"), []byte(body))
	res := c.response()
	text := proctest.Value(io.ReadAll(res.Body))(s.t)
	c.Close()
	return res.StatusCode, compact(string(text))
}

// compact takes out the white space that protojson puts in at random.
func compact(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}

func envelope(msg []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg)))
	return append(b, msg...)
}

// event is one decoded message of a stream, or its trailer.
type event struct {
	Event struct {
		Start     *struct{ PID int }
		Data      *struct{ Stdout, Stderr, PTY string }
		End       *endEvent
		Keepalive *struct{}
	}
	Error *struct{ Code, Message string }

	trailer bool
	raw     string
}

type endEvent struct {
	ExitCode int
	Exited   bool
	Status   string
	Error    *string
}

// stream is the client side of Start or Connect in JSON.
type stream struct {
	*conn
	res *http.Response
	pid int
}

func (s *server) stream(method, body string, headers ...string) *stream {
	s.t.Helper()
	return s.dial().stream(method, body, headers...)
}

func (c *conn) stream(method, body string, headers ...string) *stream {
	c.t.Helper()
	c.send("POST", "/process.Process/"+method, append(headers, "Content-Type: application/connect+json"), envelope([]byte(body)))
	res := c.response()
	if res.StatusCode != 200 {
		c.t.Fatalf("%s: status %s", method, res.Status)
	}
	return &stream{conn: c, res: res}
}

// next reads one message. ok is false at the end of the body.
func (st *stream) next() (event, bool) {
	st.t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(st.res.Body, head[:]); err == io.EOF {
		return event{}, false
	} else if err != nil {
		st.t.Fatalf("read envelope: %v", err)
	}
	msg := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(st.res.Body, msg); err != nil {
		st.t.Fatalf("read message: %v", err)
	}
	ev := event{trailer: head[0]&2 != 0, raw: compact(string(msg))}
	if err := json.Unmarshal(msg, &ev); err != nil {
		st.t.Fatalf("message %q: %v", msg, err)
	}
	return ev, true
}

// started reads the start event.
func (st *stream) started() *stream {
	st.t.Helper()
	ev, ok := st.next()
	if !ok || ev.Event.Start == nil || ev.Event.Start.PID == 0 {
		st.t.Fatalf("the first message is %q, not a start event", ev.raw)
	}
	st.pid = ev.Event.Start.PID
	return st
}

// result is all of a stream after its start event.
type result struct {
	Stdout, Stderr, PTY string
	End                 *endEvent
	Keepalives          int
	Err                 string // "code: message" of the trailer
}

// rest reads to the end of the stream.
func (st *stream) rest() result {
	st.t.Helper()
	var r result
	var stdout strings.Builder // += would copy a long output for each event
	for {
		ev, ok := st.next()
		if !ok {
			st.t.Fatal("the stream ended without a trailer")
		}
		if d := ev.Event.Data; d != nil && d.Stdout != "" && r.End == nil {
			stdout.WriteString(decode(st.t, d.Stdout))
			continue
		}
		if ev.trailer {
			r.Stdout = stdout.String()
			if ev.Error != nil {
				r.Err = ev.Error.Code + ": " + ev.Error.Message
			}
			if _, more := st.next(); more {
				st.t.Fatal("a message came after the trailer")
			}
			return r
		}
		r.add(st.t, ev)
	}
}

func (r *result) add(t *testing.T, ev event) {
	t.Helper()
	switch {
	case r.End != nil:
		t.Fatalf("%q came after the end event", ev.raw)
	case ev.Event.Data != nil:
		r.Stdout += decode(t, ev.Event.Data.Stdout)
		r.Stderr += decode(t, ev.Event.Data.Stderr)
		r.PTY += decode(t, ev.Event.Data.PTY)
	case ev.Event.End != nil:
		r.End = ev.Event.End
	case ev.Event.Keepalive != nil:
		r.Keepalives++
	}
}

// until reads output until it holds the text.
func (st *stream) until(text string) string {
	st.t.Helper()
	var r result
	for !strings.Contains(r.Stdout+r.Stderr+r.PTY, text) {
		ev, ok := st.next()
		if !ok || ev.trailer || ev.Event.End != nil {
			st.t.Fatalf("the stream ended with %q before %q came", ev.raw, text)
		}
		r.add(st.t, ev)
	}
	return r.Stdout + r.Stderr + r.PTY
}

func decode(t *testing.T, text string) string {
	t.Helper()
	b := proctest.Value(base64.StdEncoding.DecodeString(text))(t)
	return string(b)
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// sh is the body of a Start of a shell line.
func sh(line string, more ...string) string {
	body := `{"process":{"cmd":"/bin/sh","args":["-c",` + strconv.Quote(line) + `]}`
	for _, m := range more {
		body += "," + m
	}
	return body + "}"
}

func exitEnd(code int) *endEvent {
	e := &endEvent{ExitCode: code, Exited: true, Status: fmt.Sprintf("exit status %d", code)}
	if code != 0 {
		e.Error = &e.Status
	}
	return e
}

func signalEnd(name string) *endEvent {
	e := &endEvent{ExitCode: -1, Status: "signal: " + name}
	e.Error = &e.Status
	return e
}
