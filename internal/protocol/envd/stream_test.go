package envd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/gen/envd/process/processconnect"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/support/proctest"
)

// client returns a generated client over HTTP/1.1 or HTTP/2.
func (s *server) client(h2 bool, opts ...connect.ClientOption) processconnect.ProcessClient {
	p := new(http.Protocols)
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	tr := &http.Transport{Protocols: p}
	s.t.Cleanup(tr.CloseIdleConnections)
	return processconnect.NewProcessClient(&http.Client{Transport: tr}, "http://"+s.addr, opts...)
}

var identity = connect.WithAcceptCompression("gzip", nil, nil)

// protocols are all the ways in which clients may speak.
var protocols = []struct {
	name string
	h2   bool
	opts []connect.ClientOption
}{
	{"Connect JSON over HTTP/1.1", false, []connect.ClientOption{connect.WithProtoJSON(), identity}},
	{"Connect proto over HTTP/1.1", false, []connect.ClientOption{identity}},
	{"Connect JSON over HTTP/2", true, []connect.ClientOption{connect.WithProtoJSON(), identity}},
	{"Connect proto over HTTP/2", true, []connect.ClientOption{identity}},
	{"Connect JSON with gzip", false, []connect.ClientOption{connect.WithProtoJSON()}},
	{"Connect proto with gzip both ways", false, []connect.ClientOption{connect.WithSendGzip()}},
	{"gRPC", true, []connect.ClientOption{connect.WithGRPC()}},
	{"gRPC-Web over HTTP/1.1", false, []connect.ClientOption{connect.WithGRPCWeb()}},
	{"gRPC-Web JSON over HTTP/1.1", false, []connect.ClientOption{connect.WithGRPCWeb(), connect.WithProtoJSON()}},
}

// garbage returns n bytes of every value, and their file.
func garbage(t *testing.T, n int) ([]byte, string) {
	t.Helper()
	data := make([]byte, n)
	h := sha256.Sum256([]byte(t.Name()))
	for i := 0; i < n; i += len(h) {
		copy(data[i:], h[:])
		h = sha256.Sum256(h[:])
	}
	file := filepath.Join(t.TempDir(), "garbage")
	proctest.Must(t, os.WriteFile(file, data, 0o600))
	return data, file
}

func TestEveryProtocolAndCodec(t *testing.T) {
	t.Parallel()
	want, file := garbage(t, 1<<20+1)
	s := serve(t, nil)
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			c := s.client(p.h2, p.opts...)
			tag := p.name
			st, err := c.Start(t.Context(), connect.NewRequest(&pb.StartRequest{Tag: &tag, Process: &pb.ProcessConfig{
				Cmd: "/bin/sh", Args: []string{"-c", "cat " + file + "; read x; cat " + file + " >&2; cat; exit 9"}}}))
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			var stdout, stderr bytes.Buffer
			var end *pb.ProcessEvent_EndEvent
			fed := false
			for first := true; st.Receive(); first = false {
				ev := st.Msg().GetEvent()
				if first != (ev.GetStart() != nil) {
					t.Fatalf("start event out of place: %v", ev)
				}
				stdout.Write(ev.GetData().GetStdout())
				stderr.Write(ev.GetData().GetStderr())
				if e := ev.GetEnd(); e != nil {
					end = e
				}
				if !fed && stdout.Len() == len(want) {
					fed = true
					feed(t, c, tag)
				}
			}
			proctest.Must(t, st.Err())
			if !bytes.Equal(stdout.Bytes(), append(want[:len(want):len(want)], "from StreamInput"...)) || !bytes.Equal(stderr.Bytes(), want) {
				t.Errorf("got %d and %d bytes, not the ones written", stdout.Len(), stderr.Len())
			}
			if end.GetExitCode() != 9 || !end.GetExited() || end.GetStatus() != "exit status 9" || end.GetError() != "exit status 9" {
				t.Errorf("end is %v", end)
			}
			_, err = c.List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
			if err != nil {
				t.Error(err)
			}
			_, err = c.CloseStdin(t.Context(), connect.NewRequest(&pb.CloseStdinRequest{Process: byTag("no such tag")}))
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("CloseStdin of nobody: %v", err)
			}
		})
	}
}

func byTag(tag string) *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: tag}}
}

func streamData(text string) *pb.StreamInputRequest {
	return &pb.StreamInputRequest{Event: &pb.StreamInputRequest_Data{Data: &pb.StreamInputRequest_DataEvent{
		Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte(text)}}}}}
}

func streamStart(tag string) *pb.StreamInputRequest {
	return &pb.StreamInputRequest{Event: &pb.StreamInputRequest_Start{Start: &pb.StreamInputRequest_StartEvent{Process: byTag(tag)}}}
}

// feed sends a line by SendInput, the rest by StreamInput, and closes stdin.
func feed(t *testing.T, c processconnect.ProcessClient, tag string) {
	t.Helper()
	if _, err := c.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{Process: byTag(tag),
		Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte("go\n")}}})); err != nil {
		t.Error(err)
	}
	in := c.StreamInput(t.Context())
	for _, m := range []*pb.StreamInputRequest{
		streamStart(tag), streamData("from "),
		{Event: &pb.StreamInputRequest_Keepalive{Keepalive: &pb.StreamInputRequest_KeepAlive{}}},
		streamData("StreamInput"),
	} {
		if err := in.Send(m); err != nil {
			t.Error(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Error(err)
	}
	if _, err := c.CloseStdin(t.Context(), connect.NewRequest(&pb.CloseStdinRequest{Process: byTag(tag)})); err != nil {
		t.Error(err)
	}
}

func TestStreamInputRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, tc := range []struct {
		name string
		msgs []*pb.StreamInputRequest
		code connect.Code
		want string
	}{
		{"data before start", []*pb.StreamInputRequest{streamData("x")}, connect.CodeInvalidArgument, "data came before a start event; the first message must name the process"},
		{"an unknown process", []*pb.StreamInputRequest{streamStart("none")}, connect.CodeNotFound, "process with tag none not found"},
		{"an empty event", []*pb.StreamInputRequest{{}}, connect.CodeUnimplemented, "invalid event type <nil>"},
		{"no message at all", nil, 0, ""},
	} {
		for _, opts := range [][]connect.ClientOption{{identity}, {identity, connect.WithProtoJSON()}} {
			in := s.client(false, opts...).StreamInput(t.Context())
			for _, m := range tc.msgs {
				_ = in.Send(m) // the answer tells
			}
			_, err := in.CloseAndReceive()
			if tc.code == 0 {
				if err != nil {
					t.Errorf("%s: %v", tc.name, err)
				}
				continue
			}
			if connect.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %v: %s", tc.name, err, tc.code, tc.want)
			}
		}
	}
}

func TestStartInPlainJSON(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	res, body := s.do("POST", "/process.Process/Start", `{"process":{"cmd":"bash","args":["-lc","echo hello"]},"tag":"hello"}`,
		"Authorization: Basic "+b64("root:"), "Connect-Protocol-Version: 1", "Content-Type: application/json")
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/json" || len(lines) != 3 {
		t.Fatalf("%s %q", res.Status, body)
	}
	var start event
	if err := json.Unmarshal([]byte(lines[0]), &start); err != nil || start.Event.Start == nil || start.Event.Start.PID == 0 {
		t.Errorf("the first line is %q", lines[0])
	}
	if d := cmp.Diff([]string{`{"event":{"data":{"stdout":"` + b64("hello\n") + `"}}}`, `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`}, lines[1:]); d != "" {
		t.Error(d)
	}
}

func TestConnectionServesMoreThanOneStream(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := s.dial()
	for i := range 5 {
		if d := cmp.Diff(result{Stdout: fmt.Sprint(i), End: exitEnd(i)}, c.stream("Start", sh(fmt.Sprintf("printf %d; exit %d", i, i))).started().rest()); d != "" {
			t.Fatalf("stream %d: %s", i, d)
		}
	}
	c.send("GET", "/health", nil, nil)
	if res := c.response(); res.StatusCode != 204 {
		t.Errorf("after the streams: %s", res.Status)
	}
	// A client that closes after one request is told so and served.
	c = s.dial()
	st := c.stream("Start", sh("true"), "Connection: close").started()
	if st.rest(); !st.res.Close {
		t.Error("the response does not say that the connection closes")
	}
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestHalfARequestAndOtherShapes(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for name, body := range map[string][]byte{
		"an envelope shorter than it says":   append([]byte{0, 0, 0, 1, 0}, "{}"...),
		"half an envelope header":            {0, 0},
		"an envelope longer than it says":    append([]byte{0, 0, 0, 0, 1}, "{}"...),
		"an envelope of 4 GiB":               append([]byte{0, 255, 255, 255, 255}, "{}"...),
		"a compressed envelope, unsolicited": append([]byte{1, 0, 0, 0, 2}, "{}"...),
		"an end-of-stream envelope":          append([]byte{2, 0, 0, 0, 2}, "{}"...),
		"no body":                            nil,
	} {
		c := s.dial()
		c.send("POST", "/process.Process/Start", []string{"Content-Type: application/connect+json"}, body)
		st := &stream{conn: c, res: c.response()}
		if got := st.rest(); got.Err == "" || got.End != nil {
			t.Errorf("%s was accepted: %+v", name, got)
		}
	}
	// The request is taken as curl sends it, too: chunked, 100-continue, HTTP/1.0.
	c := s.dial()
	fmt.Fprintf(c, "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
	if res := c.response(); res.StatusCode != 100 {
		t.Fatal(res.Status)
	}
	msg := envelope([]byte(sh("printf chunked")))
	fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(msg), msg)
	if got := (&stream{conn: c, res: c.response()}).started().rest(); got.Stdout != "chunked" {
		t.Errorf("chunked: %+v", got)
	}
	c = s.dial()
	msg = envelope([]byte(sh("printf old")))
	fmt.Fprintf(c, "POST /process.Process/Start HTTP/1.0\r\nContent-Type: application/connect+json\r\nContent-Length: %d\r\n\r\n%s", len(msg), msg)
	if got := (&stream{conn: c, res: c.response()}).started().rest(); got.Stdout != "old" {
		t.Errorf("HTTP/1.0: %+v", got)
	}
}

func TestKeepalive(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	st := s.stream("Start", sh("read x", `"tag":"quiet"`), "Keepalive-Ping-Interval: 0").started()
	for range 2 {
		if ev, _ := st.next(); ev.Event.Keepalive == nil {
			t.Fatalf("got %s, want a keepalive", ev.raw)
		}
	}
	plain := s.stream("Connect", `{"process":{"tag":"quiet"}}`).started()
	s.call("CloseStdin", `{"process":{"tag":"quiet"}}`)
	if got := plain.rest(); got.Keepalives != 0 {
		t.Errorf("%d keepalives before 90 s", got.Keepalives)
	}
}

// TestStalledReaders: three readers that never read hold up neither the
// process nor a healthy reader, and get every byte when they read after all.
func TestStalledReaders(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	want, file := garbage(t, size)
	s := serve(t, nil)
	starter := s.stream("Start", sh("read x; cat "+file, `"tag":"big"`)).started()
	var stalled []*stream
	for i := range 3 {
		kind := []string{"Connect-Accept-Encoding: identity", "Connect-Accept-Encoding: identity", "Connect-Accept-Encoding: gzip"}[i]
		stalled = append(stalled, s.stream("Connect", `{"process":{"tag":"big"}}`, kind))
		if i < 2 {
			stalled[i].started()
		}
	}
	s.call("SendInput", `{"process":{"tag":"big"},"input":{"stdin":"`+b64("\n")+`"}}`)
	if got := starter.rest(); got.Stdout != string(want) || got.End == nil {
		t.Fatalf("the healthy reader got %d bytes and end %v", len(got.Stdout), got.End)
	}
	for _, st := range stalled[:2] {
		st.SetDeadline(time.Now().Add(patience))
		if got := st.rest(); got.Stdout != string(want) || got.End == nil {
			t.Errorf("a reader that had stalled got %d bytes and end %v", len(got.Stdout), got.End)
		}
	}
}

func TestClientThatLeaves(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	st := s.stream("Start", sh("printf a; read x; printf b; exit 2")).started()
	st.until("a")
	st.Close()
	again := s.stream("Connect", "{"+sel(st.pid)+"}").started()
	s.call("CloseStdin", "{"+sel(st.pid)+"}")
	if d := cmp.Diff(result{Stdout: "b", End: exitEnd(2)}, again.rest()); d != "" {
		t.Error(d)
	}
}

func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	st := s.stream("Start", sh("read x")).started()
	generic, err := s.client(true, connect.WithGRPC()).Connect(context.Background(), connect.NewRequest(&pb.ConnectRequest{
		Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: uint32(st.pid)}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer generic.Close()
	if !generic.Receive() {
		t.Fatal(generic.Err())
	}
	stalled := s.stream("Start", sh("yes")) // never read
	proctest.Must(t, s.face.Close())
	if got := st.rest(); !strings.HasPrefix(got.Err, "unavailable: the server is stopping") {
		t.Errorf("the stream ended with %+v", got)
	}
	if generic.Receive() || connect.CodeOf(generic.Err()) != connect.CodeUnavailable {
		t.Errorf("the gRPC stream ended with %v", generic.Err())
	}
	_ = stalled
}

// TestNetPipe runs a stream over a connection without a descriptor, as a
// server with connections of its own kind has.
func TestNetPipe(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, s.face, nil))
	ours, theirs := net.Pipe()
	l := &onePipe{conn: theirs, done: make(chan struct{})}
	hs := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	defer func() {
		hs.Close()
		<-served
	}()
	want, file := garbage(t, 1<<20)
	c := &conn{t: t, Conn: ours, r: bufio.NewReader(ours)}
	if got := c.stream("Start", sh("cat "+file)).started().rest(); got.Stdout != string(want) {
		t.Errorf("got %d bytes", len(got.Stdout))
	}
	ours.Close()
}

type onePipe struct {
	conn net.Conn
	done chan struct{}
}

func (l *onePipe) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}
func (l *onePipe) Close() error   { close(l.done); return nil }
func (l *onePipe) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
