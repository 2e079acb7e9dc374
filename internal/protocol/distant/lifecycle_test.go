package distant_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/protocol/distant/distanttest"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/internal/protocol/protocoltest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

func TestFaceAsLines(t *testing.T) {
	protocoltest.Run(t, func(t *testing.T) protocoltest.Client { return &linesClient{serveLines(t)} })
}

func TestFaceNative(t *testing.T) {
	protocoltest.Run(t, func(t *testing.T) protocoltest.Client { return &nativeClient{n: serveNative(t)} })
}

func shell(line string) string { return "sh -c '" + strings.ReplaceAll(line, "'", `'\''`) + "'" }

func exitOf(code int) *protocoltest.Exit {
	if code > 128 {
		return &protocoltest.Exit{Signal: code - 128}
	}
	return &protocoltest.Exit{Code: code}
}

// serveLines serves JSON lines on a port and returns its address.
func serveLines(t *testing.T) string {
	t.Helper()
	return serveLinesOf(t, newFace(t, testkeeper.New(t)))
}

func serveLinesOf(t *testing.T, f *distant.Face) string {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				f.ServeLines(ctx, conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// lineConn is a connection of JSON lines.
type lineConn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dialLines(t *testing.T, addr string) *lineConn {
	t.Helper()
	conn := proctest.Value(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &lineConn{t, conn, bufio.NewReaderSize(conn, 64<<10)}
}

type line struct {
	Type        string
	ID          uint32
	Data        octets
	Code        *int
	Kind        string
	Description string
}

// octets are a list of numbers. Some lists are long, and encoding/json is slow at it.
type octets []byte

func (o *octets) UnmarshalJSON(text []byte) error {
	list := bytes.Trim(text, "[]")
	if len(list)+2 != len(text) {
		return fmt.Errorf("%.20q is no list", text)
	}
	for len(list) > 0 {
		var number []byte
		number, list, _ = bytes.Cut(list, []byte(","))
		n, err := strconv.ParseUint(string(number), 10, 8)
		if err != nil {
			return err
		}
		*o = append(*o, byte(n))
	}
	return nil
}

func (c *lineConn) send(text string) {
	c.t.Helper()
	proctest.Value(c.Write([]byte(text + "\n")))(c.t)
}

func (c *lineConn) next() (l line) {
	c.t.Helper()
	text, err := c.r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

func (c *lineConn) ask(typ, format string, args ...any) line {
	c.t.Helper()
	c.send(fmt.Sprintf(format, args...))
	l := c.next()
	if l.Type != typ {
		c.t.Fatalf("want %s, got %+v", typ, l)
	}
	return l
}

type linesClient struct{ addr string }

func (c *linesClient) Start(t *testing.T, text string) protocoltest.Stream {
	conn := dialLines(t, c.addr)
	cmd := proctest.Value(json.Marshal(shell(text)))(t)
	return &linesStream{lineConn: conn, id: conn.ask("proc_spawned", `{"type":"proc_spawn","cmd":%s}`, cmd).ID}
}

func (c *linesClient) Resume(t *testing.T, s protocoltest.Stream, from int64) protocoltest.Stream {
	conn := dialLines(t, c.addr)
	id := s.(*linesStream).id
	conn.ask("proc_spawned", `{"type":"tend_attach","id":%d,"stdout":%d}`, id, from)
	return &linesStream{lineConn: conn, id: id}
}

func (c *linesClient) tell(t *testing.T, s protocoltest.Stream, format string, args ...any) {
	t.Helper()
	args = append([]any{s.(*linesStream).id}, args...)
	dialLines(t, c.addr).ask("ok", format, args...)
}

func (c *linesClient) Input(t *testing.T, s protocoltest.Stream, text string) {
	c.tell(t, s, `{"type":"proc_stdin","id":%d,"data":%s}`, wire.AppendByteArray(nil, []byte(text)))
}

func (c *linesClient) EOF(t *testing.T, s protocoltest.Stream) {
	c.tell(t, s, `{"type":"tend_close_stdin","id":%d}`)
}

func (c *linesClient) Signal(t *testing.T, s protocoltest.Stream, sig int) {
	c.tell(t, s, `{"type":"tend_signal","id":%d,"signal":%d}`, sig)
}

type linesStream struct {
	*lineConn
	id    uint32
	ended bool
}

func (s *linesStream) Drop() { s.Close() }

func (s *linesStream) Next(t *testing.T) (ev protocoltest.Event, ok bool) {
	if s.ended {
		return ev, false
	}
	switch l := s.next(); l.Type {
	case "proc_stdout":
		ev.Stdout = l.Data
	case "proc_stderr":
		ev.Stderr = l.Data
	case "proc_done":
		s.ended = true
		ev.Exit = exitOf(*l.Code)
	default:
		t.Fatalf("%+v", l)
	}
	return ev, true
}

// nativeClient resumes the session of a stream that was dropped, and attaches
// from a session of its own to others.
type nativeClient struct {
	n     *native
	mu    sync.Mutex
	other *distanttest.Client // for requests about streams of others
}

func (c *nativeClient) Start(t *testing.T, text string) protocoltest.Stream {
	conn := c.n.connect()
	return &nativeStream{Client: conn, id: spawned(t, conn, shell(text))}
}

func (c *nativeClient) Resume(t *testing.T, s protocoltest.Stream, from int64) protocoltest.Stream {
	st := s.(*nativeStream)
	if st.dropped {
		if st.stdout != from {
			t.Fatalf("the stream stands at %d, not at %d", st.stdout, from)
		}
		st.dropped = false
		return st
	}
	conn := c.n.connect()
	conn.About("tend_attach", st.id, "stdout", int(from))
	if m := one(t, conn); m.Type != "proc_spawned" || m.ID != st.id {
		t.Fatalf("%+v", m)
	}
	return &nativeStream{Client: conn, id: st.id, stdout: from}
}

// ok waits for the answer to a request of the other session.
func (c *nativeClient) ok(t *testing.T, send func(conn *distanttest.Client) string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.other == nil {
		c.other = c.n.connect()
	}
	origin := send(c.other)
	if m := one(t, c.other); m.Type != "ok" || m.Origin != origin {
		t.Fatalf("%+v", m)
	}
}

func (c *nativeClient) Input(t *testing.T, s protocoltest.Stream, text string) {
	c.ok(t, func(conn *distanttest.Client) string { return conn.Stdin(s.(*nativeStream).id, []byte(text)) })
}

func (c *nativeClient) EOF(t *testing.T, s protocoltest.Stream) {
	c.ok(t, func(conn *distanttest.Client) string {
		return conn.About("tend_close_stdin", s.(*nativeStream).id)
	})
}

func (c *nativeClient) Signal(t *testing.T, s protocoltest.Stream, sig int) {
	c.ok(t, func(conn *distanttest.Client) string {
		return conn.About("tend_signal", s.(*nativeStream).id, "signal", sig)
	})
}

type nativeStream struct {
	*distanttest.Client
	id      uint32
	stdout  int64
	dropped bool
	ended   bool
}

func (s *nativeStream) Drop() {
	s.dropped = true
	s.Cut()
}

func (s *nativeStream) Next(t *testing.T) (ev protocoltest.Event, ok bool) {
	if s.ended {
		return ev, false
	}
	switch m := one(t, s.Client); m.Type {
	case "proc_stdout":
		ev.Stdout = m.Data
		s.stdout += int64(len(m.Data))
	case "proc_stderr":
		ev.Stderr = m.Data
	case "proc_done":
		s.ended = true
		ev.Exit = exitOf(m.Code)
	default:
		t.Fatalf("%+v", m)
	}
	return ev, true
}
