package envd

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/process"
)

// service answers the RPCs in all of Connect's protocols and codecs. What
// ordinary clients send, but for List, takes the hot path and does not come here.
type service struct{ f *Face }

// List returns the live processes of the sandbox, those of all protocols, with the
// configuration as it was given.
func (s *service) List(ctx context.Context, _ *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	infos, err := s.f.in(ctx).Processes().List(ctx, process.Filter{Live: true})
	if err != nil {
		return nil, wireErr(err)
	}
	res := &pb.ListResponse{Processes: make([]*pb.ProcessInfo, 0, len(infos))}
	for i := range infos {
		p := &pb.ProcessInfo{Config: configOf(&infos[i]), Pid: uint32(infos[i].PID)}
		if tag := infos[i].Spec.Tag; tag != "" {
			p.Tag = &tag
		}
		res.Processes = append(res.Processes, p)
	}
	return connect.NewResponse(res), nil
}

// Start implements the service for the generic protocols.
func (s *service) Start(ctx context.Context, req *connect.Request[pb.StartRequest], out *connect.ServerStream[pb.StartResponse]) error {
	o, err := s.f.openStart(ctx, req.Header(), req.Msg)
	if err != nil {
		return wireErr(err)
	}
	budget.Of(ctx).Release()
	setHeaders(out.ResponseHeader(), o)
	return s.f.serveMessages(ctx, o, protocol.KeepaliveOf(req.Header()), func(ev *pb.ProcessEvent) error {
		return out.Send(&pb.StartResponse{Event: ev})
	})
}

// Connect implements the service for the generic protocols.
func (s *service) Connect(ctx context.Context, req *connect.Request[pb.ConnectRequest],
	out *connect.ServerStream[pb.ConnectResponse]) error {
	o, err := s.f.openConnect(ctx, req.Header(), req.Msg)
	if err != nil {
		return wireErr(err)
	}
	budget.Of(ctx).Release()
	setHeaders(out.ResponseHeader(), o)
	return s.f.serveMessages(ctx, o, protocol.KeepaliveOf(req.Header()), func(ev *pb.ProcessEvent) error {
		return out.Send(&pb.ConnectResponse{Event: ev})
	})
}

// Update implements the service for the generic protocols.
func (s *service) Update(ctx context.Context, req *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	if err := s.f.update(ctx, req.Msg); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.UpdateResponse{}), nil
}

// SendSignal implements the service for the generic protocols.
func (s *service) SendSignal(ctx context.Context,
	req *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	if err := s.f.sendSignal(ctx, req.Header(), req.Msg); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SendSignalResponse{}), nil
}

// SendInput implements the service for the generic protocols.
func (s *service) SendInput(ctx context.Context,
	req *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	if err := s.f.sendInput(ctx, req.Msg); err != nil {
		return nil, wireErr(err)
	}
	return connect.NewResponse(&pb.SendInputResponse{}), nil
}

// StreamInput implements the service for the generic protocols.
func (s *service) StreamInput(ctx context.Context,
	in *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var target inputTarget
	for in.Receive() {
		if err := s.f.streamInput(ctx, &target, in.Msg()); err != nil {
			return nil, wireErr(err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StreamInputResponse{}), nil
}

// CloseStdin implements the service for the generic protocols.
func (s *service) CloseStdin(ctx context.Context,
	req *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	if err := s.f.closeStdin(ctx, req.Msg); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.CloseStdinResponse{}), nil
}

// genericChunk bounds a data event of the generic protocols: their messages
// are buffered whole by each layer.
const genericChunk = 32 << 10

// messageSink is the [protocol.Sink] of the generic protocols.
type messageSink struct {
	send func(*pb.ProcessEvent) error
	exit *process.Exit
	held budget.Charge // for the message that its reader takes
}

func (s *messageSink) Event(ev process.Event, _ protocol.Output) error {
	switch ev.Kind {
	case process.EventStarted:
		return s.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: uint32(ev.PID)}}})
	case process.EventOutput:
		return protocol.InPieces(&s.held, ev, s.output)
	case process.EventGap:
		return gapError(ev.Gap)
	case process.EventExited:
		s.exit = ev.Exit
	}
	return nil
}

func (s *messageSink) output(ev process.Event) error {
	data := &pb.ProcessEvent_DataEvent{}
	switch ev.Stream {
	case process.Stdout:
		data.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: ev.Data}
	case process.Stderr:
		data.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: ev.Data}
	default:
		data.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: ev.Data}
	}
	return s.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: data}})
}

func (s *messageSink) Flush() error { return nil } // Send flushes

func (s *messageSink) Keepalive() error {
	return s.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}})
}

// serveMessages pumps one process into a generic stream.
func (f *Face) serveMessages(ctx context.Context, o *opened, keepalive time.Duration, send func(*pb.ProcessEvent) error) error {
	o.opts.MaxChunk = genericChunk
	r, err := o.proc.Read(ctx, o.opts)
	if err != nil {
		return wireErr(err)
	}
	defer r.Close()
	ctx, cancel := f.joined(ctx)
	defer cancel()
	sink := &messageSink{send: send}
	sink.held.Like(budget.Of(ctx))
	if err := protocol.Stream(ctx, r, sink, keepalive); err != nil {
		return wireErr(err)
	}
	if o.timedOut(sink.exit) {
		return wireErr(context.DeadlineExceeded)
	}
	if sink.exit == nil {
		return nil
	}
	e := endOf(sink.exit)
	end := &pb.ProcessEvent_EndEvent{ExitCode: e.ExitCode, Exited: e.Exited, Status: e.Status}
	if e.Error != "" {
		end.Error = &e.Error
	}
	return send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: end}})
}
