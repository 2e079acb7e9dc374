package sandboxd

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/tend-run/tend/internal/gen/sandboxd/process"
	"github.com/tend-run/tend/internal/gen/sandboxd/process/processconnect"
	"github.com/tend-run/tend/internal/protocol/protocoltest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func TestLifecycle(t *testing.T) {
	protocoltest.Run(t, func(t *testing.T) protocoltest.Client {
		s := serve(t, nil)
		return lifecycle{s, s.client(t)}
	})
}

// lifecycle speaks the protocol for package protocoltest, to processes that outlive their streams.
type lifecycle struct {
	*served
	client processconnect.ProcessServiceClient
}

func (l lifecycle) Start(t *testing.T, line string) protocoltest.Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, number := begin(t, l.client, ctx, "1", "/bin/sh", "-c", line)
	return lifeStream{number, cancel, stream}
}

// Resume: the protocol has none. What has the ID of the process reads it by tend's own API.
func (l lifecycle) Resume(t *testing.T, s protocoltest.Stream, from int64) protocoltest.Stream {
	t.Helper()
	number := s.(lifeStream).number
	p := proctest.Value(l.manager.Get(t.Context(), process.Selector{Tag: tagOf(number)}))(t)
	r := proctest.Value(p.Read(t.Context(), process.ReadOptions{From: [4]int64{process.Stdout: from}, Drain: -1}))(t)
	t.Cleanup(func() { r.Close() })
	return resumed{lifeStream{number: number}, r}
}

func numberOf(s protocoltest.Stream) int32 {
	if r, ok := s.(resumed); ok {
		return r.number
	}
	return s.(lifeStream).number
}

func (l lifecycle) Input(t *testing.T, s protocoltest.Stream, text string) {
	t.Helper()
	proctest.Value(l.client.WriteStdin(t.Context(), connect.NewRequest(&pb.WriteStdinRequest{ProcessId: numberOf(s),
		Payload: &pb.WriteStdinRequest_Input{Input: []byte(text)}})))(t)
}

func (l lifecycle) EOF(t *testing.T, s protocoltest.Stream) {
	t.Helper()
	proctest.Value(l.client.WriteStdin(t.Context(), connect.NewRequest(&pb.WriteStdinRequest{ProcessId: numberOf(s),
		Payload: &pb.WriteStdinRequest_Eof{}})))(t)
}

func (l lifecycle) Signal(t *testing.T, s protocoltest.Stream, sig int) {
	t.Helper()
	proctest.Value(l.client.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{ProcessId: numberOf(s),
		Signal: pb.Signal(sig)})))(t)
}

type lifeStream struct {
	number int32
	leave  context.CancelFunc
	stream *connect.ServerStreamForClient[pb.StartResponse]
}

func (s lifeStream) Drop() { s.leave() }

func (s lifeStream) Next(t *testing.T) (protocoltest.Event, bool) {
	t.Helper()
	if !s.stream.Receive() {
		proctest.Must(t, s.stream.Err())
		return protocoltest.Event{}, false
	}
	switch ev := s.stream.Msg().Event.(type) {
	case *pb.StartResponse_Stdout:
		return protocoltest.Event{Stdout: ev.Stdout}, true
	case *pb.StartResponse_Stderr:
		return protocoltest.Event{Stderr: ev.Stderr}, true
	case *pb.StartResponse_Exit:
		if ev.Exit.ExitCode >= 0 {
			return protocoltest.Event{Exit: &protocoltest.Exit{Code: int(ev.Exit.ExitCode)}}, true
		}
		if s.stream.Receive() {
			t.Error("something came after the exit")
		}
		sig := proctest.Value(strconv.Atoi(s.stream.ResponseTrailer().Get(signalHeader)))(t)
		return protocoltest.Event{Exit: &protocoltest.Exit{Signal: sig}}, true
	}
	t.Fatalf("an event is %v", s.stream.Msg())
	return protocoltest.Event{}, false
}

// resumed is output that is read by tend's own interface.
type resumed struct {
	lifeStream
	r process.Reader
}

func (s resumed) Drop() { s.r.Close() }

func (s resumed) Next(t *testing.T) (protocoltest.Event, bool) {
	t.Helper()
	for {
		ev, ok, err := s.r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return protocoltest.Event{}, false
		case err != nil:
			t.Fatal(err)
		case !ok:
			<-s.r.Ready()
		case ev.Kind == process.EventOutput && ev.Stream == process.Stderr:
			return protocoltest.Event{Stderr: ev.Data}, true
		case ev.Kind == process.EventOutput:
			return protocoltest.Event{Stdout: ev.Data}, true
		case ev.Kind == process.EventExited:
			return protocoltest.Event{Exit: &protocoltest.Exit{Code: ev.Exit.Code, Signal: ev.Exit.Signal}}, true
		}
	}
}
