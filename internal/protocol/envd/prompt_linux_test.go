package envd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// A prompt to a client that does not read returns. What it leaves is sent first by
// the next that may wait, and the client gets all in order.
func TestAPromptLeavesWhatTheClientDoesNotTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pty")
	want := bytes.Repeat([]byte("0123456789abcde\n"), 256)
	proctest.Must(t, os.WriteFile(path, want, 0o600))
	spooled := proctest.Value(os.Open(path))(t)
	defer spooled.Close()
	for _, c := range []codec{codecProto, codecJSON, codecLines} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			ours, theirs := sockets(t)
			s := &frameSink{codec: c, out: &connOutlet{ctx: t.Context(), conn: ours, head: []byte("HEAD\r\n")}}
			if _, ok := s.WantsPrompt(); !ok {
				t.Fatal("a connection of its own takes no prompts")
			}
			if s.Clear() {
				t.Fatal("the head is still to be sent")
			}
			proctest.Must(t, s.Flush())
			ev := process.Event{Kind: process.EventOutput, Stream: process.PTY}
			out := protocol.Output{Span: process.Span{File: spooled, Len: len(want)}}
			sent := 0
			for s.Clear() {
				if !s.Prompt(ev, out) {
					t.Fatal("an event at hand is left to others")
				}
				if sent++; sent > 1<<20 {
					t.Fatal("the socket never fills")
				}
			}
			got := make(chan []byte)
			go func() {
				all, _ := io.ReadAll(theirs)
				got <- all
			}()
			// The stream's own goroutine: what is left, an event, a large one, a prompt, the end.
			proctest.Must(t, s.Flush())
			proctest.Must(t, s.Event(ev, out))
			proctest.Must(t, s.Flush())
			proctest.Must(t, s.large(ev, out, len(want)))
			if !s.Clear() || !s.Prompt(ev, out) {
				t.Fatal("no prompt behind a large event")
			}
			proctest.Must(t, s.finish(nil))
			ours.Close()
			chunk := func(body []byte) string { return fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }
			one := chunk(c.appendData(nil, process.PTY, want))
			var all bytes.Buffer
			all.WriteString("HEAD\r\n")
			for range sent + 3 {
				all.WriteString(one)
			}
			if trailer := c.appendTrailer(nil, nil); len(trailer) > 0 {
				all.WriteString(chunk(trailer))
			}
			all.WriteString("0\r\n\r\n")
			if got := <-got; !bytes.Equal(got, all.Bytes()) {
				t.Errorf("the client got %d bytes, or others; want %d", len(got), all.Len())
			}
		})
	}
}

// A prompt to a client that has left does not fail by itself: the next write does.
func TestAPromptToAClientThatLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pty")
	proctest.Must(t, os.WriteFile(path, []byte("x"), 0o600))
	spooled := proctest.Value(os.Open(path))(t)
	defer spooled.Close()
	ours, theirs := sockets(t)
	s := &frameSink{codec: codecProto, out: &connOutlet{ctx: t.Context(), conn: ours}}
	theirs.(*net.TCPConn).SetLinger(0)
	theirs.Close()
	ev := process.Event{Kind: process.EventOutput, Stream: process.PTY}
	out := protocol.Output{Span: process.Span{File: spooled, Len: 1}}
	for s.Clear() {
		s.Prompt(ev, out)
	}
	if err := s.Flush(); err == nil {
		t.Error("what is left was sent to nobody")
	}
	if s.Clear() {
		t.Error("more would be sent")
	}
	if err := s.finish(nil); err == nil {
		t.Error("the end was told to nobody")
	}
}

// Bytes that retention has freed are not sent at a prompt.
func TestAPromptSendsNoFreedBytes(t *testing.T) {
	ours, _ := sockets(t)
	s := &frameSink{codec: codecProto, out: &connOutlet{ctx: context.Background(), conn: ours}}
	short := proctest.Value(os.Create(filepath.Join(t.TempDir(), "pty")))(t)
	defer short.Close()
	ev := process.Event{Kind: process.EventOutput, Stream: process.PTY}
	if s.Prompt(ev, protocol.Output{Span: process.Span{File: short, Len: 9}}) {
		t.Error("bytes were sent that are not there")
	}
	for _, n := range []int{0, largeEvent} {
		if s.Prompt(ev, protocol.Output{Span: process.Span{File: short, Len: n}}) {
			t.Errorf("an event of %d bytes was sent", n)
		}
	}
}

// sockets are two ends of a connection that takes little.
func sockets(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	theirs = proctest.Value(net.Dial("tcp", l.Addr().String()))(t)
	ours = proctest.Value(l.Accept())(t)
	theirs.(*net.TCPConn).SetReadBuffer(4 << 10)
	ours.(*net.TCPConn).SetWriteBuffer(4 << 10)
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}
