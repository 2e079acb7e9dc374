//go:build linux

package raw

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/support/proctest"
)

func stdin(text string) *pb.ProcessInput {
	return &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte(text)}}
}

func tty(text string) *pb.ProcessInput {
	return &pb.ProcessInput{Input: &pb.ProcessInput_Pty{Pty: []byte(text)}}
}

func terminal(line string, cols, rows uint32) *pb.StartRequest {
	return &pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", line}},
		Pty:     &pb.PTY{Size: &pb.PTY_Size{Cols: cols, Rows: rows}},
	}
}

// streamInput calls the client-streaming method.
func (d *daemon) streamInput(t *testing.T, c codec, msgs ...*pb.StreamInputRequest) error {
	t.Helper()
	var body []byte
	for _, m := range msgs {
		body = append(body, envelope(c.marshal(m))...)
	}
	req := proctest.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/process.Process/StreamInput", bytes.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/connect+"+string(c))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("StreamInput is cut: %v", err)
	}
	defer res.Body.Close()
	s := &stream{c: c, res: res}
	msg, err := s.frame()
	if err != nil {
		return err
	}
	proctest.Must(t, c.unmarshal(msg, new(pb.StreamInputResponse)))
	if _, err := s.frame(); err == nil {
		t.Fatal("StreamInput answers more than one message")
	}
	return nil
}

func to(sel *pb.ProcessSelector) *pb.StreamInputRequest {
	return &pb.StreamInputRequest{Event: &pb.StreamInputRequest_Start{Start: &pb.StreamInputRequest_StartEvent{Process: sel}}}
}

func give(in *pb.ProcessInput) *pb.StreamInputRequest {
	return &pb.StreamInputRequest{Event: &pb.StreamInputRequest_Data{Data: &pb.StreamInputRequest_DataEvent{Input: in}}}
}

func TestStreamInput(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		one := shared.open(t, c, "Start", withStdin(sh("cat"))).started(t)
		two := shared.open(t, c, "Start", withStdin(sh("cat"))).started(t)
		err := shared.streamInput(t, c,
			to(byPID(one.pid)), give(stdin("first ")), &pb.StreamInputRequest{Event: &pb.StreamInputRequest_Keepalive{Keepalive: &pb.StreamInputRequest_KeepAlive{}}},
			give(stdin("second")), to(byPID(two.pid)), give(stdin("other")))
		if err != nil {
			t.Fatal(err)
		}
		for s, want := range map[*stream]string{one: "first second", two: "other"} {
			shared.ok(t, "CloseStdin", &pb.CloseStdinRequest{Process: byPID(s.pid)}, nil)
			if s.finish(t); string(s.stdout) != want {
				t.Errorf("got %q, want %q", s.stdout, want)
			}
		}
		if err := shared.streamInput(t, c); err != nil {
			t.Errorf("an empty stream: %v", err)
		}
	})
}

func TestStreamInputRefusals(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		deaf := shared.open(t, c, "Start", withStdin(sh("exec <&-; echo deaf; exec sleep 60"))).started(t)
		defer shared.kill(t, deaf.pid)
		deaf.until(t, "deaf")
		for name, tc := range map[string]struct {
			msgs []*pb.StreamInputRequest
			code string
		}{
			"a stdin that nobody reads": {[]*pb.StreamInputRequest{to(byPID(deaf.pid)), give(stdin("x")), give(stdin("y"))}, "internal"},
			"data before start":         {[]*pb.StreamInputRequest{give(stdin("x"))}, "invalid_argument"},
			"an unknown pid":            {[]*pb.StreamInputRequest{to(byPID(4_000_000))}, "not_found"},
			"an unknown tag":            {[]*pb.StreamInputRequest{to(byTag("no such tag"))}, "not_found"},
			"no selector":               {[]*pb.StreamInputRequest{to(nil)}, "unimplemented"},
			"an empty event":            {[]*pb.StreamInputRequest{{}}, "unimplemented"},
		} {
			f, ok := shared.streamInput(t, c, tc.msgs...).(*failure)
			if !ok || f.Code != tc.code {
				t.Errorf("%s: %v, want %s", name, f, tc.code)
			}
		}
	})
}

func TestUnaryRefusals(t *testing.T) {
	t.Parallel()
	plain := shared.start(t, "exec sleep 60")
	pty := shared.open(t, inProto, "Start", terminal("exec sleep 60", 80, 24)).started(t)
	closed := shared.open(t, inProto, "Start", withStdin(sh("exec sleep 60"))).started(t)
	shared.ok(t, "CloseStdin", &pb.CloseStdinRequest{Process: byPID(closed.pid)}, nil)
	deaf := shared.open(t, inProto, "Start", withStdin(sh("exec <&-; echo deaf; exec sleep 60"))).started(t)
	deaf.until(t, "deaf")
	done := shared.start(t, "true").finish(t)
	size := &pb.PTY{Size: &pb.PTY_Size{Cols: 80, Rows: 24}}
	defer func() {
		for _, s := range []*stream{plain, pty, closed, deaf} {
			shared.kill(t, s.pid)
		}
	}()

	for name, tc := range map[string]struct {
		method string
		req    proto.Message
		status int // 200: no error
		code   string
		text   string
	}{
		"input without a selector":         {"SendInput", &pb.SendInputRequest{Input: stdin("x")}, 501, "unimplemented", "invalid input type *process.ProcessSelector"},
		"input to nobody":                  {"SendInput", &pb.SendInputRequest{Process: byPID(4_000_000), Input: stdin("x")}, 404, "not_found", "process with pid 4000000 not found"},
		"input to the finished":            {"SendInput", &pb.SendInputRequest{Process: byPID(done.pid), Input: stdin("x")}, 404, "not_found", fmt.Sprintf("process with pid %d not found", done.pid)},
		"no input":                         {"SendInput", &pb.SendInputRequest{Process: byPID(plain.pid)}, 501, "unimplemented", "invalid input type <nil>"},
		"stdin where there is none":        {"SendInput", &pb.SendInputRequest{Process: byPID(plain.pid), Input: stdin("x")}, 500, "internal", "error writing to stdin: stdin not enabled or closed"},
		"stdin that is closed":             {"SendInput", &pb.SendInputRequest{Process: byPID(closed.pid), Input: stdin("x")}, 500, "internal", "error writing to stdin: stdin not enabled or closed"},
		"stdin that nobody reads":          {"SendInput", &pb.SendInputRequest{Process: byPID(deaf.pid), Input: stdin("x")}, 500, "internal", fmt.Sprintf("error writing to stdin: error writing to stdin of process '%d': write |1: broken pipe", deaf.pid)},
		"stdin of a terminal":              {"SendInput", &pb.SendInputRequest{Process: byPID(pty.pid), Input: stdin("x")}, 500, "internal", "error writing to stdin: tty assigned to process"},
		"terminal input without terminal":  {"SendInput", &pb.SendInputRequest{Process: byPID(plain.pid), Input: tty("x")}, 500, "internal", "error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty"},
		"close again":                      {"CloseStdin", &pb.CloseStdinRequest{Process: byPID(closed.pid)}, 200, "", ""},
		"close what was never open":        {"CloseStdin", &pb.CloseStdinRequest{Process: byPID(plain.pid)}, 200, "", ""},
		"close a terminal":                 {"CloseStdin", &pb.CloseStdinRequest{Process: byPID(pty.pid)}, 500, "unknown", "error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead"},
		"close the finished":               {"CloseStdin", &pb.CloseStdinRequest{Process: byPID(done.pid)}, 404, "not_found", ""},
		"update without a terminal":        {"Update", &pb.UpdateRequest{Process: byPID(plain.pid)}, 200, "", ""},
		"resize without a terminal":        {"Update", &pb.UpdateRequest{Process: byPID(plain.pid), Pty: size}, 500, "internal", "error resizing tty: tty not assigned to process"},
		"resize of nobody":                 {"Update", &pb.UpdateRequest{Process: byTag("no such tag"), Pty: size}, 404, "not_found", "process with tag no such tag not found"},
		"a signal that is none":            {"SendSignal", &pb.SendSignalRequest{Process: byPID(plain.pid)}, 501, "unimplemented", "invalid signal: SIGNAL_UNSPECIFIED"},
		"a signal that is not offered":     {"SendSignal", &pb.SendSignalRequest{Process: byPID(plain.pid), Signal: 2}, 501, "unimplemented", "invalid signal: 2"},
		"a signal to the finished":         {"SendSignal", &pb.SendSignalRequest{Process: byPID(done.pid), Signal: 15}, 404, "not_found", ""},
		"a signal without a selector":      {"SendSignal", &pb.SendSignalRequest{Signal: 15}, 501, "unimplemented", "invalid input type *process.ProcessSelector"},
		"a signal to pid 0, all processes": {"SendSignal", &pb.SendSignalRequest{Process: byPID(0), Signal: 9}, 404, "not_found", ""},
		"a signal to pid 1":                {"SendSignal", &pb.SendSignalRequest{Process: byPID(1), Signal: 9}, 404, "not_found", ""},
		"a signal to the empty tag":        {"SendSignal", &pb.SendSignalRequest{Process: byTag(""), Signal: 9}, 404, "not_found", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []codec{inJSON, inProto} {
				status, f := shared.unary(t, c, tc.method, tc.req, nil)
				if status != tc.status {
					t.Errorf("%s: status %d (%v), want %d", c, status, f, tc.status)
				}
				if f != nil && (f.Code != tc.code || !strings.Contains(f.Message, tc.text)) {
					t.Errorf("%s: %v, want %s: %s", c, f, tc.code, tc.text)
				}
			}
		})
	}
}

func TestConnectRefusals(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		for want, sel := range map[string]*pb.ProcessSelector{
			"not_found: process with pid 4000000 not found":                  byPID(4_000_000),
			"not_found: process with tag no such tag not found":              byTag("no such tag"),
			"unimplemented: invalid input type *process.ProcessSelector":     nil,
			"unimplemented: invalid input type *process.ProcessSelector\x00": {},
		} {
			f := shared.open(t, c, "Connect", &pb.ConnectRequest{Process: sel}).refused(t)
			if f.Error() != strings.TrimSuffix(want, "\x00") {
				t.Errorf("%v, want %s", f, want)
			}
		}
	})
}

func TestInputToAProcessThatDoesNotReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := shared.open(t, inProto, "Start", withStdin(sh(fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.01; done; sha256sum", dir)))).started(t)
	big := strings.Repeat("0123456789abcdef", 200_000/16)
	wrote := make(chan *failure, 1)
	go func() {
		_, f := shared.unary(t, inProto, "SendInput", &pb.SendInputRequest{Process: byPID(s.pid), Input: stdin(big)}, nil)
		wrote <- f
	}()
	other := shared.open(t, inProto, "Start", withStdin(sh("cat"))).started(t)
	shared.ok(t, "SendInput", &pb.SendInputRequest{Process: byPID(other.pid), Input: stdin("meanwhile")}, nil)
	other.until(t, "meanwhile")
	shared.kill(t, other.pid)
	if out := shared.start(t, "touch "+filepath.Join(dir, "go")).finish(t); out.end.GetExitCode() != 0 {
		t.Fatal(out.end)
	}
	if f := <-wrote; f != nil {
		t.Fatal(f)
	}
	shared.ok(t, "CloseStdin", &pb.CloseStdinRequest{Process: byPID(s.pid)}, nil)
	if s.finish(t); string(s.stdout) != fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(big))) {
		t.Errorf("got %q", s.stdout)
	}
}

func TestTerminals(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		for name, tc := range map[string]struct {
			req  *pb.StartRequest
			want string
		}{
			"of a size":     {terminal("stty size", 132, 43), "43 132\r\n"},
			"of no size":    {&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "stty", Args: []string{"size"}}, Pty: &pb.PTY{}}, "0 0\r\n"},
			"of a huge one": {terminal("stty size", 1<<31, 65535+24), ""},
		} {
			s := shared.open(t, c, "Start", tc.req).started(t).finish(t)
			if tc.want != "" && string(s.pty) != tc.want {
				t.Errorf("%s: %q, want %q", name, s.pty, tc.want)
			}
			if len(s.stdout)+len(s.stderr) > 0 || s.end.GetExitCode() != 0 {
				t.Errorf("%s: stdout %q, stderr %q, end %v", name, s.stdout, s.stderr, s.end)
			}
		}
		s := shared.open(t, c, "Start", terminal(`read a; echo "<$a>"; stty size; read b`, 80, 24)).started(t)
		shared.ok(t, "Update", &pb.UpdateRequest{Process: byPID(s.pid), Pty: &pb.PTY{Size: &pb.PTY_Size{Cols: 90, Rows: 30}}}, nil)
		shared.ok(t, "SendInput", &pb.SendInputRequest{Process: byPID(s.pid), Input: tty("hé\n")}, nil)
		s.until(t, "<hé>\r\n30 90\r\n")
		shared.ok(t, "SendInput", &pb.SendInputRequest{Process: byPID(s.pid), Input: tty("\x04")}, nil)
		if s.finish(t); s.end.GetExitCode() != 1 {
			t.Errorf("ctrl-d gives end %v", s.end)
		}
	})
}
