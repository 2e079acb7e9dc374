package envd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// shrinking is a process whose output lies in a file, and whose retention frees
// all of it at the moment that a test chooses.
type shrinking struct {
	process.Manager
	process.Process
	file  *os.File
	size  int64
	asked func() // after each look at what is kept

	mu   sync.Mutex
	base int64
}

func (s *shrinking) Get(context.Context, process.Selector) (process.Process, error) { return s, nil }
func (s *shrinking) ID() process.ID                                                 { return "shrinking" }
func (s *shrinking) Info(context.Context) (process.Info, error) {
	return process.Info{ID: s.ID(), PID: 7, Spec: process.Spec{Argv: []string{"x"}}, Streams: []process.StreamInfo{{Stream: process.Stdout, End: s.size}, {Stream: process.Stderr}}}, nil
}
func (s *shrinking) Read(context.Context, process.ReadOptions) (process.Reader, error) {
	return &shrinkingReader{s: s, ready: make(chan struct{})}, nil
}

// free has all that was not read yet read as zeros.
func (s *shrinking) free(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == s.size {
		return
	}
	s.base = s.size
	if _, err := s.file.WriteAt(make([]byte, s.size), 0); err != nil {
		t.Error(err)
	}
}

type shrinkingReader struct {
	s       *shrinking
	ready   chan struct{}
	started bool
	pos     int64
}

func (r *shrinkingReader) Ready() <-chan struct{} { return r.ready }
func (r *shrinkingReader) Close() error           { return nil }
func (r *shrinkingReader) Next() (process.Event, bool, error) {
	ev, _, ok, err := r.NextSpan(1)
	return ev, ok, err
}

func (r *shrinkingReader) NextSpan(max int) (ev process.Event, span process.Span, ok bool, err error) {
	r.s.mu.Lock()
	base := r.s.base
	r.s.mu.Unlock()
	ev.ID, ev.Stream, ev.Offset = r.s.ID(), process.Stdout, r.pos
	switch {
	case !r.started:
		r.started = true
		ev.Kind, ev.PID = process.EventStarted, 7
	case r.pos == r.s.size:
		return ev, span, false, io.EOF
	case base > r.pos:
		ev.Kind, ev.Gap = process.EventGap, process.Gap{Stream: process.Stdout, From: r.pos, To: base}
		r.pos = base
	default:
		ev.Kind = process.EventOutput
		span = process.Span{File: r.s.file, Offset: r.pos, Len: int(min(int64(max), r.s.size-r.pos))}
		r.pos += int64(span.Len)
	}
	return ev, span, true, nil
}

func (r *shrinkingReader) Valid(_ process.Stream, offset int64) bool {
	r.s.mu.Lock()
	kept := r.s.base <= offset
	r.s.mu.Unlock()
	if r.s.asked != nil {
		r.s.asked()
	}
	return kept
}

func newShrinking(t *testing.T) *shrinking {
	t.Helper()
	s := &shrinking{size: 1 << 20}
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err == nil {
		_, err = f.Write(bytes.Repeat([]byte("x"), int(s.size)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s.file = f
	return s
}

// whole reads the frames of a stream and fails unless there is output, of which
// every byte is what the process wrote, and then the word of what is lost.
func whole(t *testing.T, r io.Reader, output func(msg []byte) []byte) {
	t.Helper()
	got := 0
	for {
		var head [5]byte
		_, err := io.ReadFull(r, head[:])
		msg := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if err == nil {
			_, err = io.ReadFull(r, msg)
		}
		switch {
		case err != nil:
			t.Fatalf("the stream broke after %d bytes: %v", got, err)
		case head[0]&2 != 0:
			if got == 0 || !strings.Contains(string(msg), "data_loss") {
				t.Errorf("after %d bytes it ended with %s", got, msg)
			}
			return
		}
		data := output(msg)
		if n := len(data) - bytes.Count(data, []byte("x")); n > 0 {
			t.Fatalf("after %d bytes come %d that the process did not write", got, n)
		}
		got += len(data)
	}
}

// What is freed right after the last look at whether it is kept is sent as it was,
// or not at all: no frame is begun that cannot be ended.
func TestAFrameIsReadBeforeItIsBegun(t *testing.T) {
	t.Parallel()
	p := newShrinking(t)
	p.asked = func() { p.free(t) }
	s := serve(t, func(c *envd.Config) { c.Sandboxes.Default = host.NewMachine(p) })
	req := proctest.Value(proto.Marshal(&pb.ConnectRequest{Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: 7}}}))(t)
	c := s.dial()
	c.send("POST", "/process.Process/Connect", []string{"Content-Type: application/connect+proto"}, envelope(req))
	whole(t, c.response().Body, func(msg []byte) []byte {
		var m pb.ConnectResponse
		proctest.Must(t, proto.Unmarshal(msg, &m))
		return m.GetEvent().GetData().GetStdout()
	})
}

// lateConn closes stalled when a write runs out of time.
type lateConn struct {
	net.Conn
	once    sync.Once
	stalled chan struct{}
}

func (c *lateConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.once.Do(func() { close(c.stalled) })
	}
	return n, err
}

// A client that stalls in the middle of a frame gets the rest of it, though its
// bytes are freed meanwhile.
func TestAFrameThatIsBegunIsEnded(t *testing.T) {
	t.Parallel()
	p := newShrinking(t)
	s := serve(t, func(c *envd.Config) { c.Sandboxes.Default = host.NewMachine(p) })
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, s.face, nil))
	ours, theirs := net.Pipe() // it holds nothing: what is out was read
	late := &lateConn{Conn: theirs, stalled: make(chan struct{})}
	l := &onePipe{conn: late, done: make(chan struct{})}
	hs := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	defer func() {
		ours.Close()
		hs.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	c := &conn{t: t, Conn: ours, r: bufio.NewReaderSize(ours, 16)}
	st := c.stream("Connect", `{"process":{"pid":7}}`).started()
	part := make([]byte, 5000)
	proctest.Value(io.ReadFull(st.res.Body, part))(t)
	p.free(t)
	<-late.stalled // its buffer is taken from it
	whole(t, io.MultiReader(bytes.NewReader(part), st.res.Body), func(msg []byte) []byte {
		_, text, _ := strings.Cut(string(msg), `"stdout":"`)
		text, _, _ = strings.Cut(text, `"`)
		return []byte(decode(t, text))
	})
}
