package langsmith_test

import (
	"fmt"
	"testing"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/protocol/protocoltest"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, func(t *testing.T) protocoltest.Client { return lifecycle{serve(t, nil)} })
}

// lifecycle speaks the LangSmith protocol for package protocoltest.
type lifecycle struct{ *server }

type lifeStream struct {
	*wsConn
	id  string
	pid int
}

func (l lifecycle) Start(t *testing.T, line string) protocoltest.Stream {
	t.Helper()
	id := fmt.Sprintf("life-%p", new(int))
	c, f := l.execute(object{"command": line, "shell": "/bin/sh", "command_id": id})
	if f.Type != "started" {
		t.Fatalf("the first frame is %+v", f)
	}
	return lifeStream{c, id, f.PID}
}

func (l lifecycle) Resume(t *testing.T, s protocoltest.Stream, from int64) protocoltest.Stream {
	t.Helper()
	id := s.(lifeStream).id
	c, f := l.reconnect(id, from, 0)
	if f.Type != "started" || f.CommandID != id {
		t.Fatalf("the first frame is %+v", f)
	}
	return lifeStream{c, id, f.PID}
}

// control opens a connection that does something to the command and leaves,
// with the close right behind the message as Python's SDK does it.
func (l lifecycle) control(s protocoltest.Stream, m object) {
	l.t.Helper()
	c, _ := l.reconnect(s.(lifeStream).id, 0, 0)
	c.send(m)
	// When the server answers the close it has read the message.
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		l.t.Fatal(err)
	}
}

func (l lifecycle) Input(_ *testing.T, s protocoltest.Stream, text string) {
	l.control(s, object{"type": "input", "data": text})
}

func (l lifecycle) EOF(_ *testing.T, s protocoltest.Stream) {
	l.control(s, object{"type": "close_stdin"})
}

// Signal: the protocol has kill alone, so another command sends the signal.
func (l lifecycle) Signal(t *testing.T, s protocoltest.Stream, sig int) {
	t.Helper()
	c, _ := l.execute(object{"command": fmt.Sprintf("kill -%d %d", sig, s.(lifeStream).pid)})
	if o := c.rest(0, 0); o.Exit == nil || *o.Exit != 0 {
		t.Fatalf("kill: %+v", o)
	}
}

func (s lifeStream) Drop() { s.CloseNow() }

func (s lifeStream) Next(t *testing.T) (protocoltest.Event, bool) {
	t.Helper()
	f, _, ok := s.next()
	switch {
	case !ok:
		return protocoltest.Event{}, false
	case f.Type == "stdout":
		return protocoltest.Event{Stdout: []byte(f.Data)}, true
	case f.Type == "stderr":
		return protocoltest.Event{Stderr: []byte(f.Data)}, true
	case f.Type == "exit" && *f.ExitCode > 128:
		return protocoltest.Event{Exit: &protocoltest.Exit{Signal: *f.ExitCode - 128}}, true
	case f.Type == "exit":
		return protocoltest.Event{Exit: &protocoltest.Exit{Code: *f.ExitCode}}, true
	}
	t.Fatalf("unexpected frame %+v", f)
	return protocoltest.Event{}, false
}
