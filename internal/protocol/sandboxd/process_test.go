package sandboxd

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/tend-run/tend/internal/gen/sandboxd/process"
	"github.com/tend-run/tend/internal/gen/sandboxd/process/processconnect"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// client is connect's own, speaking gRPC.
func (s *served) client(t *testing.T, options ...connect.ClientOption) processconnect.ProcessServiceClient {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return processconnect.NewProcessServiceClient(&http.Client{Transport: tr}, s.grpc, append(options, connect.WithGRPC())...)
}

func config(argv ...string) *pb.ProcessConfig { return &pb.ProcessConfig{Command: argv} }

// begin starts a process, and returns its stream and number.
func begin(t *testing.T, c processconnect.ProcessServiceClient, ctx context.Context, keep string, argv ...string) (
	*connect.ServerStreamForClient[pb.StartResponse], int32) {
	t.Helper()
	req := connect.NewRequest(&pb.StartRequest{Config: config(argv...)})
	req.Header().Set(keepHeader, keep)
	stream := proctest.Value(c.Start(ctx, req))(t)
	t.Cleanup(func() { stream.Close() })
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	return stream, stream.Msg().GetInit().ProcessId
}

func TestErrorsOfProcessesNameFieldAndLimit(t *testing.T) {
	s := serve(t, nil)
	c := s.client(t)
	_, number := begin(t, c, t.Context(), "", "sleep", "100")
	execute := func(config *pb.ProcessConfig) error {
		_, err := c.Execute(t.Context(), connect.NewRequest(&pb.ExecuteRequest{Config: config}))
		return err
	}
	outside := ".."
	for _, tt := range []struct {
		err  error
		code connect.Code
		text string
	}{
		{execute(nil), connect.CodeInvalidArgument, "config.command is empty"},
		{execute(config("")), connect.CodeInvalidArgument, "argv[0] is empty"},
		{execute(config("none-such")), connect.CodeNotFound, `program "none-such" is not found`},
		{execute(&pb.ProcessConfig{Command: []string{"pwd"}, Cwd: &outside}), connect.CodePermissionDenied, "cwd: "},
		{execute(&pb.ProcessConfig{Command: []string{"true"}, EnvVars: map[string]string{"A=B": "x"}}), connect.CodeInvalidArgument, "A=B"},
		{func() error {
			_, err := c.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{ProcessId: number, Signal: 5}))
			return err
		}(), connect.CodeInvalidArgument, "signal is 5; SIGINT (2), SIGKILL (9) and SIGTERM (15) are allowed"},
		{func() error {
			_, err := c.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{ProcessId: 77, Signal: 9}))
			return err
		}(), connect.CodeNotFound, "process 77 is not found"},
		{func() error {
			_, err := c.ResizeTTY(t.Context(), connect.NewRequest(&pb.ResizeTTYRequest{ProcessId: number, Cols: 1 << 16, Rows: 1}))
			return err
		}(), connect.CodeInvalidArgument, "cols is 65536; the limit is 65535"},
		{func() error {
			_, err := c.ResizeTTY(t.Context(), connect.NewRequest(&pb.ResizeTTYRequest{ProcessId: number, Cols: 1, Rows: 1}))
			return err
		}(), connect.CodeFailedPrecondition, "no terminal"},
		{func() error {
			in := &pb.WriteStdinRequest{ProcessId: number, Payload: &pb.WriteStdinRequest_Input{Input: make([]byte, maxMessage)}}
			_, err := c.WriteStdin(t.Context(), connect.NewRequest(in))
			return err
		}(), connect.CodeResourceExhausted, "4194304"},
	} {
		if connect.CodeOf(tt.err) != tt.code || !strings.Contains(tt.err.Error(), tt.text) {
			t.Errorf("%v; want %v with %s", tt.err, tt.code, tt.text)
		}
	}
}

// TestTheBudgetRefusesLargeMessagesAndOutput, and lets small requests pass when it is used up.
func TestTheBudgetRefusesLargeMessagesAndOutput(t *testing.T) {
	b := budget.New(4 << 20)
	s := serve(t, func(c *Config) { c.Budget = b })
	c := s.client(t)
	stream, number := begin(t, c, t.Context(), "", "cat")
	full := b.Charge()
	proctest.Must(t, full.Add(4<<20-64<<10))
	in := &pb.WriteStdinRequest{ProcessId: number, Payload: &pb.WriteStdinRequest_Input{Input: make([]byte, 1<<20)}}
	if _, err := c.WriteStdin(t.Context(), connect.NewRequest(in)); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("input of 1 MiB: %v", err)
	}
	out := connect.NewRequest(&pb.ExecuteRequest{Config: config("head", "-c", "1000000", "/dev/zero")})
	if _, err := c.Execute(t.Context(), out); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("output of 1 MB: %v", err)
	}
	proctest.Value(c.SendSignal(t.Context(), connect.NewRequest(
		&pb.SendSignalRequest{ProcessId: number, Signal: pb.Signal_SIGNAL_SIGKILL})))(t)
	for stream.Receive() {
	}
	full.Release()
	if res := proctest.Value(c.Execute(t.Context(), out))(t); len(res.Msg.Stdout) != 1_000_000 {
		t.Errorf("with room: %d bytes", len(res.Msg.Stdout))
	}
	proctest.Eventually(t, "all is given back", func() bool { return b.Used() == 0 })
}

// TestOnlyGRPCIsAnswered: neither what a browser can send, nor Connect's own protocol.
func TestOnlyGRPCIsAnswered(t *testing.T) {
	s := serve(t, nil)
	h1 := &http.Transport{DisableKeepAlives: true}
	req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", s.grpc+procedure+"Execute", strings.NewReader("{}")))(t)
	req.Header.Set("Content-Type", "application/json")
	if res, err := h1.RoundTrip(req); err == nil {
		t.Errorf("HTTP/1.1: %s", res.Status)
		res.Body.Close()
	}
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	for _, kind := range []string{"application/json", "application/proto", "application/grpc-web+proto", "application/grpc+json"} {
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", s.grpc+procedure+"Execute", strings.NewReader("{}")))(t)
		req.Header.Set("Content-Type", kind)
		res := proctest.Value(h2.RoundTrip(req))(t)
		if res.Body.Close(); res.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %s", kind, res.Status)
		}
	}
	all := proctest.Value(s.manager.List(t.Context(), process.Filter{}))(t)
	if len(all) > 0 {
		t.Errorf("%d processes were started", len(all))
	}
}

// TestTheNextServerFindsWhatRuns by its number, and begins after it.
func TestTheNextServerFindsWhatRuns(t *testing.T) {
	s := serve(t, nil)
	stream, number := begin(t, s.client(t), t.Context(), "", "cat")
	s.end()
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("the stream of the former server: %v", stream.Err())
	}
	s.start(t, nil)
	c := s.client(t)
	if _, after := begin(t, c, t.Context(), "", "true"); after != number+1 {
		t.Errorf("the next number is %d; want %d", after, number+1)
	}
	p := proctest.Value(s.manager.Get(t.Context(), process.Selector{Tag: tagOf(number)}))(t)
	proctest.Value(c.WriteStdin(t.Context(), connect.NewRequest(&pb.WriteStdinRequest{ProcessId: number,
		Payload: &pb.WriteStdinRequest_Input{Input: []byte("still here")}})))(t)
	proctest.Value(c.WriteStdin(t.Context(), connect.NewRequest(&pb.WriteStdinRequest{ProcessId: number,
		Payload: &pb.WriteStdinRequest_Eof{}})))(t)
	if exit := proctest.Value(p.Wait(t.Context(), process.Until{}))(t).Exit; exit.Code != 0 || exit.Signal != 0 {
		t.Errorf("%+v", exit)
	}
	_, err := c.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{ProcessId: number, Signal: pb.Signal_SIGNAL_SIGTERM}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the number of what has ended: %v", err)
	}
}

// TestWhoseClientLeavesIsEnded, unless it was started to be kept.
func TestWhoseClientLeavesIsEnded(t *testing.T) {
	s := serve(t, nil)
	c := s.client(t)
	exitOf := func(number int32) *process.Exit {
		p := proctest.Value(s.manager.Get(t.Context(), process.Selector{Tag: tagOf(number)}))(t)
		return proctest.Value(p.Info(t.Context()))(t).Exit
	}
	ctx, leave := context.WithCancel(t.Context())
	_, ended := begin(t, c, ctx, "", "sleep", "100")
	_, kept := begin(t, c, ctx, "1", "sleep", "100")
	leave()
	proctest.Eventually(t, "the process is ended", func() bool { return exitOf(ended) != nil })
	proctest.Eventually(t, "both streams are over", func() bool { return s.face.Streams() == 0 })
	if exit := exitOf(kept); exit != nil {
		t.Errorf("what is to be kept has ended: %+v", exit)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Execute(short, connect.NewRequest(&pb.ExecuteRequest{Config: config("sleep", "100")}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("Execute with a deadline: %v", err)
	}
	proctest.Eventually(t, "what Execute has started is ended", func() bool {
		all := proctest.Value(s.manager.List(t.Context(), process.Filter{Live: true}))(t)
		return len(all) == 1
	})
}

func TestAListenerThatFailsEndsTheFace(t *testing.T) {
	s := serve(t, nil)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Close()
	c := s.face.cfg
	c.REST, c.GRPC = l, proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	if err := proctest.Value(New(c))(t).Run(t.Context()); !errors.Is(err, net.ErrClosed) ||
		!strings.Contains(err.Error(), "serve sandboxd on") {
		t.Errorf("%v", err)
	}
}
