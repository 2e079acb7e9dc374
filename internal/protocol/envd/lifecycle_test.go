package envd_test

import (
	"fmt"
	"testing"

	"github.com/tend-run/tend/internal/protocol/protocoltest"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, func(t *testing.T) protocoltest.Client { return lifecycle{serve(t, nil)} })
}

// lifecycle speaks envd's protocol for package protocoltest.
type lifecycle struct{ *server }

type lifeStream struct{ *stream }

func (l lifecycle) Start(_ *testing.T, line string) protocoltest.Stream {
	return lifeStream{l.stream("Start", sh(line)).started()}
}

func (l lifecycle) Resume(_ *testing.T, s protocoltest.Stream, from int64) protocoltest.Stream {
	return lifeStream{l.stream("Connect", "{"+sel(s.(lifeStream).pid)+"}", fmt.Sprintf("Tend-From: stdout=%d", from)).started()}
}

func (l lifecycle) Input(t *testing.T, s protocoltest.Stream, text string) {
	t.Helper()
	l.ok(t, "SendInput", "{"+sel(s.(lifeStream).pid)+`,"input":{"stdin":"`+b64(text)+`"}}`)
}

func (l lifecycle) EOF(t *testing.T, s protocoltest.Stream) {
	t.Helper()
	l.ok(t, "CloseStdin", "{"+sel(s.(lifeStream).pid)+"}")
}

func (l lifecycle) Signal(t *testing.T, s protocoltest.Stream, sig int) {
	t.Helper()
	l.ok(t, "SendSignal", fmt.Sprintf(`{%s,"signal":%d}`, sel(s.(lifeStream).pid), sig))
}

func (l lifecycle) ok(t *testing.T, method, body string) {
	t.Helper()
	if code, text := l.call(method, body); code != 200 {
		t.Fatalf("%s: %d %s", method, code, text)
	}
}

func (s lifeStream) Drop() { s.Close() }

func (s lifeStream) Next(t *testing.T) (protocoltest.Event, bool) {
	t.Helper()
	for {
		ev, ok := s.next()
		switch {
		case !ok || ev.trailer:
			return protocoltest.Event{}, false
		case ev.Event.Data != nil:
			return protocoltest.Event{Stdout: []byte(decode(t, ev.Event.Data.Stdout)), Stderr: []byte(decode(t, ev.Event.Data.Stderr))}, true
		case ev.Event.End != nil:
			e := protocoltest.Exit{Code: ev.Event.End.ExitCode}
			if !ev.Event.End.Exited {
				e = protocoltest.Exit{Signal: signalNumbers[ev.Event.End.Status]}
			}
			return protocoltest.Event{Exit: &e}, true
		}
	}
}

var signalNumbers = map[string]int{"signal: terminated": 15, "signal: killed": 9}
