//go:build linux

package raw

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/support/proctest"
)

// codec is one of Connect's message encodings.
type codec string

const (
	inJSON  codec = "json"
	inProto codec = "proto"
)

// codecs runs a test in both.
func codecs(t *testing.T, test func(t *testing.T, c codec)) {
	for _, c := range []codec{inJSON, inProto} {
		t.Run(string(c), func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

func (c codec) marshal(m proto.Message) []byte {
	var b []byte
	var err error
	if c == inJSON {
		b, err = protojson.Marshal(m)
	} else {
		b, err = proto.Marshal(m)
	}
	if err != nil {
		panic(err) // a message of this package's own making
	}
	return b
}

func (c codec) unmarshal(b []byte, m proto.Message) error {
	if c == inJSON {
		return protojson.Unmarshal(b, m)
	}
	return proto.Unmarshal(b, m)
}

// failure is an error as Connect puts it on the wire.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

// envelope frames one message of a stream.
func envelope(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...)
}

// unary makes one call. The answer is nil if it failed.
func (d *daemon) unary(t *testing.T, c codec, method string, req, answer proto.Message, header ...string) (int, *failure) {
	t.Helper()
	status, text := d.Ask(t, http.MethodPost, "/process.Process/"+method, string(c.marshal(req)),
		append(header, "Content-Type", "application/"+string(c))...)
	if status == http.StatusOK {
		if answer != nil {
			if err := c.unmarshal([]byte(text), answer); err != nil {
				t.Fatalf("%s answers %q: %v", method, text, err)
			}
		}
		return status, nil
	}
	f := new(failure)
	if err := json.Unmarshal([]byte(text), f); err != nil {
		t.Fatalf("%s answers status %d with %q: %v", method, status, text, err)
	}
	return status, f
}

// ok makes a unary call that must succeed.
func (d *daemon) ok(t *testing.T, method string, req, answer proto.Message, header ...string) {
	t.Helper()
	if status, f := d.unary(t, inProto, method, req, answer, header...); f != nil {
		t.Fatalf("%s: status %d, %v", method, status, f)
	}
}

// stream is an open Start or Connect.
type stream struct {
	c      codec
	res    *http.Response
	pid    int
	stdout []byte
	stderr []byte
	pty    []byte
	end    *pb.ProcessEvent_EndEvent
}

// open sends a request to a streaming method.
func (d *daemon) open(t *testing.T, c codec, method string, req proto.Message, header ...string) *stream {
	t.Helper()
	s := proctest.Value(d.tryOpen(t, c, method, req, header...))(t)
	return s
}

func (d *daemon) tryOpen(t *testing.T, c codec, method string, req proto.Message, header ...string) (*stream, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/process.Process/"+method, bytes.NewReader(envelope(c.marshal(req))))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/connect+"+string(c))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers status %d; streams always answer 200", method, res.StatusCode)
	}
	return &stream{c: c, res: res}, nil
}

// frame reads one frame. An error on the wire is a *failure, the proper end
// is io.EOF, and anything else is a cut.
func (s *stream) frame() ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(s.res.Body, head[:]); err != nil {
		return nil, fmt.Errorf("cut: %w", unexpected(err))
	}
	msg := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(s.res.Body, msg); err != nil {
		return nil, fmt.Errorf("cut: %w", unexpected(err))
	}
	switch head[0] {
	case 0:
		return msg, nil
	case 2:
		var end struct{ Error *failure }
		if err := json.Unmarshal(msg, &end); err != nil {
			return nil, fmt.Errorf("end frame %q: %w", msg, err)
		}
		if end.Error != nil {
			return nil, end.Error
		}
		return nil, io.EOF
	}
	return nil, fmt.Errorf("frame with flags %#x", head[0])
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads one event, and keeps what it brings.
func (s *stream) next() (*pb.ProcessEvent, error) {
	msg, err := s.frame()
	if err != nil {
		return nil, err
	}
	var res pb.StartResponse // ConnectResponse has the same form
	if err := s.c.unmarshal(msg, &res); err != nil {
		return nil, fmt.Errorf("event %q: %w", msg, err)
	}
	ev := res.GetEvent()
	switch e := ev.GetEvent().(type) {
	case *pb.ProcessEvent_Start:
		s.pid = int(e.Start.GetPid())
	case *pb.ProcessEvent_Data:
		s.stdout = append(s.stdout, e.Data.GetStdout()...)
		s.stderr = append(s.stderr, e.Data.GetStderr()...)
		s.pty = append(s.pty, e.Data.GetPty()...)
	case *pb.ProcessEvent_End:
		s.end = e.End
	case *pb.ProcessEvent_Keepalive:
	default:
		return nil, fmt.Errorf("event %q is none that is known", msg)
	}
	return ev, nil
}

// started reads the first event, which must be start.
func (s *stream) started(t *testing.T) *stream {
	t.Helper()
	ev, err := s.next()
	if err != nil {
		t.Fatalf("the first event: %v", err)
	}
	if ev.GetStart() == nil || s.pid == 0 {
		t.Fatalf("the first event is %v and not start", ev)
	}
	return s
}

// all reads to the end. The error is nil after the proper end of a stream.
func (s *stream) all() error {
	for {
		if _, err := s.next(); errors.Is(err, io.EOF) && s.end != nil {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// finish reads to the proper end.
func (s *stream) finish(t *testing.T) *stream {
	t.Helper()
	if err := s.all(); err != nil {
		t.Fatalf("the stream ends with %v", err)
	}
	return s
}

// refused reads the end of a stream that fails.
func (s *stream) refused(t *testing.T) *failure {
	t.Helper()
	var f *failure
	if err := s.all(); !errors.As(err, &f) {
		t.Fatalf("the stream ends with %v and not with an error", err)
	}
	return f
}

// until reads until stdout contains text.
func (s *stream) until(t *testing.T, text string) {
	t.Helper()
	for !bytes.Contains(s.stdout, []byte(text)) && !bytes.Contains(s.pty, []byte(text)) {
		if _, err := s.next(); err != nil {
			t.Fatalf("before %q came: %v; stdout %q, pty %q, stderr %q", text, err, s.stdout, s.pty, s.stderr)
		}
	}
}

// sh is a request that runs a shell line, without stdin.
func sh(line string) *pb.StartRequest {
	off := false
	return &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", line}}, Stdin: &off}
}

func withStdin(req *pb.StartRequest) *pb.StartRequest {
	req.Stdin = nil
	return req
}

func withTag(req *pb.StartRequest, tag string) *pb.StartRequest {
	req.Tag = &tag
	return req
}

func byPID(pid int) *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: uint32(pid)}}
}

func byTag(tag string) *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: tag}}
}

// start runs a shell line and returns its stream after the start event.
func (d *daemon) start(t *testing.T, line string, header ...string) *stream {
	t.Helper()
	return d.open(t, inProto, "Start", sh(line), header...).started(t)
}

func (d *daemon) connect(t *testing.T, sel *pb.ProcessSelector, header ...string) *stream {
	t.Helper()
	return d.open(t, inProto, "Connect", &pb.ConnectRequest{Process: sel}, header...)
}

func (d *daemon) kill(t *testing.T, pid int, header ...string) {
	t.Helper()
	d.ok(t, "SendSignal", &pb.SendSignalRequest{Process: byPID(pid), Signal: pb.Signal_SIGNAL_SIGKILL}, nil, header...)
}

func (d *daemon) listed(t *testing.T, pid int) *pb.ProcessInfo {
	t.Helper()
	var list pb.ListResponse
	d.ok(t, "List", &pb.ListRequest{}, &list)
	for _, p := range list.GetProcesses() {
		if int(p.GetPid()) == pid {
			return p
		}
	}
	return nil
}

// counted is what `counter` prints.
func counted(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%015d\n", i)
	}
	return b.String()
}

// counter is a shell line that prints n lines of 16 bytes, at most 100 every
// pause seconds.
func counter(n int, pause string) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do printf '%%015d\n' $i; i=$((i+1)); [ $((i %% 100)) -ne 0 ] || sleep %s; done`, n, pause)
}
