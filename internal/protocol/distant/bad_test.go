package distant_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant/distanttest"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

func TestBadLines(t *testing.T) {
	for _, tc := range []struct{ name, line, kind string }{
		{"what is no JSON", `{"type":`, "invalid_data"},
		{"what is no object", `[]`, "invalid_data"},
		{"what is not UTF-8", "\xff\xfe", "invalid_data"},
		{"what is nested too deep", strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "invalid_data"},
		{"an unknown type", `{"type":"nope"}`, "unsupported"},
		{"no type", `{}`, "invalid_input"},
		{"an unknown field", `{"type":"version","x":1}`, "invalid_input"},
		{"a field that comes twice", `{"type":"version","type":"version"}`, "invalid_data"},
		{"a number that is none of 32 bits", `{"type":"proc_kill","id":4294967296}`, "invalid_input"},
		{"a null environment", `{"type":"proc_spawn","cmd":"ls","environment":null}`, "invalid_input"},
		{"a terminal of a million columns", `{"type":"proc_spawn","cmd":"ls","pty":{"rows":1,"cols":1000000}}`, "invalid_input"},
		{"a signal that is none", `{"type":"tend_signal","id":1,"signal":1000}`, "invalid_input"},
		{"an envelope with too many requests", `{"id":"1","payload":[` + strings.Repeat("1,", 1024) + `1]}`, "invalid_data"},
	} {
		t.Run(tc.name+" is answered once, and the connection goes on", func(t *testing.T) {
			t.Parallel()
			c := dialLines(t, serveLines(t))
			c.send(tc.line)
			l := c.any()
			if payload, ok := l["payload"].(map[string]any); ok {
				l = payload
			}
			if l["type"] != "error" || l["kind"] != tc.kind || l["description"] == "" {
				t.Errorf("%v", l)
			}
			c.ask("version", `{"type":"version"}`)
		})
	}
}

func TestLongLine(t *testing.T) {
	c := dialLines(t, serveLines(t))
	go func() {
		part := []byte(strings.Repeat("x", 1<<20))
		for range 65 {
			if _, err := c.Write(part); err != nil {
				return
			}
		}
		c.Write([]byte("\n{\"type\":\"version\"}\n"))
	}()
	if l := c.next(); l.Kind != "invalid_data" {
		t.Errorf("%+v", l)
	}
	if l := c.next(); l.Type != "version" {
		t.Errorf("%+v", l)
	}
}

// TestHTTP: a web page can make a browser send lines to a loopback port, behind
// the head of a request.
func TestHTTP(t *testing.T) {
	c := dialLines(t, serveLines(t))
	c.send("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n{\"type\":\"version\"}")
	if text, err := c.r.ReadString('\n'); err == nil {
		t.Errorf("a browser was answered %s", text)
	}
}

// TestFlood: callers that say nothing do not keep the owner of the key out, and
// are dropped when there are too many.
func TestFlood(t *testing.T) {
	n := serveNative(t)
	var silent []net.Conn
	for range 300 {
		nc := proctest.Value(n.dial())(t)
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(patience))
		silent = append(silent, nc)
	}
	c := n.connect()
	if got := untilDone(t, c, spawned(t, c, "true")); got.code != 0 {
		t.Error(got)
	}
	// The oldest got the greeting and then the end.
	b := make([]byte, 4096)
	for {
		if _, err := silent[0].Read(b); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the first of 300 silent callers is still there")
			}
			break
		}
	}
}

// TestTheFloodDropsItsOwn: a caller that has come further than silence, and a
// silent one from another address, stay while strangers come by the thousand.
func TestTheFloodDropsItsOwn(t *testing.T) {
	n := serveNative(t)
	slow := proctest.Value(n.dial())(t)
	defer slow.Close()
	slow.SetDeadline(time.Now().Add(patience))
	conn := proctest.Value(secure.Client(slow, secure.Hello{}))(t)
	elsewhere := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	quiet := proctest.Value(elsewhere.Dial("tcp", n.addr.Load().(string)))(t)
	defer quiet.Close()
	quiet.SetDeadline(time.Now().Add(patience))
	for range 1500 {
		nc := proctest.Value(n.dial())(t)
		defer nc.Close()
	}
	for name, finish := range map[string]func() error{
		"the slow caller": func() error { _, err := conn.Login(key); return err },
		"the quiet caller": func() error {
			conn, err := secure.Client(quiet, secure.Hello{})
			if err == nil {
				_, err = conn.Login(key)
			}
			return err
		},
	} {
		if err := finish(); err != nil {
			t.Errorf("%s was dropped: %v", name, err)
		}
	}
}

// TestSlowCallers: who does not show the key in time is dropped, whatever they
// have sent until then; who has shown it may be silent for as long as they like.
func TestSlowCallers(t *testing.T) {
	n := &native{t: t, manager: testkeeper.New(t), dir: filepath.Join(t.TempDir(), "sessions"), setup: time.Second}
	n.start()
	t.Cleanup(func() { n.stop() })
	c := n.connect()
	var callers []net.Conn
	for _, sent := range []string{"", "\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x10half", "GET / HTTP/1.1\r\n\r\n"} {
		nc := proctest.Value(n.dial())(t)
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(patience))
		proctest.Value(nc.Write([]byte(sent)))(t)
		callers = append(callers, nc)
	}
	for i, nc := range callers {
		_, err := io.Copy(io.Discard, nc)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("caller %d is still there", i)
		}
	}
	if got := untilDone(t, c, spawned(t, c, "true")); got.code != 0 {
		t.Error(got)
	}
}

func TestWrongKeyAndWrongOTP(t *testing.T) {
	n := serveNative(t)
	if _, err := distanttest.Connect(n.dial, secure.Key{9}); err == nil {
		t.Error("a wrong key was taken")
	}
	c := n.connect()
	for range 3 {
		nc := proctest.Value(n.dial())(t)
		nc.SetDeadline(time.Now().Add(patience))
		conn := proctest.Value(secure.Client(nc, secure.Hello{Resume: true, ID: c.ID(), OTP: secure.Key{1}}))(t)
		if frame, err := conn.ReadFrame(); err == nil {
			t.Errorf("a wrong password was answered %x", frame)
		}
		nc.Close()
	}
	// The right one is not burnt, nor is the connection that is served.
	id := spawned(t, c, "cat")
	c.Cut()
	c.Stdin(id, []byte("x"))
	if m := one(t, c); m.Type != "ok" && m.Type != "proc_stdout" {
		t.Errorf("%+v", m)
	}
}

// TestTakeover: who has the password is the client, whatever becomes of an old
// connection that is half open.
func TestTakeover(t *testing.T) {
	n := serveNative(t)
	c := n.connect()
	id := spawned(t, c, "cat")
	if err := c.Resume(); err != nil { // the old connection is still there
		t.Fatal(err)
	}
	c.Stdin(id, []byte("hello"))
	var got string
	for got != "hello" {
		if m := one(t, c); m.Type == "proc_stdout" {
			got += string(m.Data)
		}
	}
}

// TestRepeatedRequest: a request whose frame comes again after a new server has
// started is done once.
func TestRepeatedRequest(t *testing.T) {
	n := serveNative(t)
	c := n.connect()
	marks := t.TempDir()
	for i := range 20 {
		c.Spawn(fmt.Sprintf("sh -c 'echo x >> %s/%d'", marks, i))
		if i%5 == 4 {
			n.restart()
		}
	}
	done := 0
	for done < 20 {
		if m := one(t, c); m.Type == "proc_done" {
			done++
		}
	}
	for i := range 20 {
		if got := readFile(t, fmt.Sprintf("%s/%d", marks, i)); got != "x\n" {
			t.Errorf("request %d was done as often as this: %q", i, got)
		}
	}
}
