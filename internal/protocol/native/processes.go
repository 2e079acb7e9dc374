package native

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// processes implements the ProcessService.
type processes struct {
	cfg      Config
	stopping <-chan struct{} // closed when the server stops
	named    *claims
}

func (s *processes) find(ctx context.Context, sel *tendv1.Selector) (process.Process, error) {
	by, err := tendpb.ToSelector(sel)
	if err != nil {
		return nil, err
	}
	mgr, err := s.cfg.manager(ctx)
	if err != nil {
		return nil, err
	}
	return mgr.Get(ctx, by)
}

// about answers a call about one process.
func about[A any](ctx context.Context, s *processes, sel *tendv1.Selector, do func(process.Process) (*A,
	error)) (*connect.Response[A], error) {
	p, err := s.find(ctx, sel)
	if err != nil {
		return nil, wireError(err)
	}
	return answer(do(p))
}

func (s *processes) Hello(context.Context, *connect.Request[tendv1.HelloRequest]) (*connect.Response[tendv1.HelloResponse], error) {
	return connect.NewResponse(&tendv1.HelloResponse{Instance: s.cfg.Instance, Version: s.cfg.Version, ListenersHeld: s.cfg.Held,
		InputWriters: true, GrepOptions: true, Sandboxes: s.cfg.Driver != nil, Services: s.cfg.Services != nil, Runs: true}), nil
}

func (s *processes) Start(ctx context.Context, req *connect.Request[tendv1.StartRequest]) (*connect.Response[tendv1.StartResponse], error) {
	mgr, err := s.cfg.manager(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	if req.Msg.GetUniqueName() {
		release, err := s.named.claim(ctx, mgr, req.Header().Get(tendpb.SandboxHeader), req.Msg.GetSpec())
		if err != nil {
			return nil, wireError(err)
		}
		defer release()
	}
	if of := req.Msg.GetEnvOf(); of != "" {
		ctx = process.EnvOf(ctx, process.ID(of))
	}
	p, err := start(ctx, mgr, req.Msg.GetSpec())
	if err != nil {
		return nil, wireError(err)
	}
	info, err := p.Info(ctx)
	return answer(&tendv1.StartResponse{Info: tendpb.Info(&info)}, err)
}

func start(ctx context.Context, mgr process.Manager, m *tendv1.Spec) (process.Process, error) {
	spec, err := tendpb.ToSpec(m)
	if err != nil {
		return nil, err
	}
	if err := tendpb.CheckText(&spec); err != nil {
		return nil, err
	}
	return mgr.Start(ctx, spec)
}

func (s *processes) Get(ctx context.Context, req *connect.Request[tendv1.GetRequest]) (*connect.Response[tendv1.GetResponse], error) {
	return about(ctx, s, req.Msg.GetProcess(), func(p process.Process) (*tendv1.GetResponse, error) {
		info, err := p.Info(ctx)
		return &tendv1.GetResponse{Info: tendpb.Info(&info)}, err
	})
}

func (s *processes) List(ctx context.Context, req *connect.Request[tendv1.ListRequest]) (*connect.Response[tendv1.ListResponse], error) {
	filter, err := tendpb.ToFilter(req.Msg)
	if err != nil {
		return nil, wireError(err)
	}
	after, err := parsePlace(req.Msg.GetAfter())
	if err != nil {
		return nil, wireError(err)
	}
	mgr, err := s.cfg.manager(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	infos, err := mgr.List(ctx, filter)
	if err != nil {
		return nil, wireError(err)
	}
	return connect.NewResponse(page(after.rest(infos), int(min(req.Msg.GetLimit(), 1<<30)))), nil
}

func (s *processes) Write(ctx context.Context, req *connect.Request[tendv1.WriteRequest]) (*connect.Response[tendv1.WriteResponse], error) {
	return about(ctx, s, req.Msg.GetProcess(), func(p process.Process) (*tendv1.WriteResponse, error) { return write(ctx, p, req.Msg) })
}

func write(ctx context.Context, p process.Process, m *tendv1.WriteRequest) (*tendv1.WriteResponse, error) {
	in := process.Input{Data: m.GetData(), Offset: m.Offset, Writer: m.GetWriter(), More: m.GetMore(), Again: m.GetAgain(),
		NoWait: m.GetNoWait(), EOF: m.GetEof()}
	switch {
	case in.Writer != "" && m.Offset != nil:
		return nil, &process.InvalidError{Field: "offset", Reason: "is set together with writer, whose offset is writer_offset"}
	case in.Writer == "" && m.WriterOffset != nil:
		return nil, &process.InvalidError{Field: "writer", Reason: "is missing, and writer_offset is set"}
	case in.Writer != "" && m.WriterOffset == nil:
		return nil, &process.InvalidError{Field: "writer_offset", Reason: "is missing, and writer is set"}
	case in.Writer != "":
		in.Offset = m.WriterOffset
	}
	if err := in.Validate(); err != nil {
		return nil, err
	}
	taken, err := p.Write(ctx, in)
	resp := &tendv1.WriteResponse{Offset: taken.Offset}
	if in.Writer != "" {
		resp.Written = &taken.Written
	}
	return resp, err
}

func (s *processes) WriteStream(ctx context.Context, stream *connect.BidiStream[tendv1.WriteRequest, tendv1.WriteResponse]) error {
	var p process.Process
	for {
		m, err := stream.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return wireError(err)
		}
		if p == nil {
			if p, err = s.find(ctx, m.GetProcess()); err != nil {
				return wireError(err)
			}
		} else if m.GetProcess() != nil {
			return wireError(&process.InvalidError{Field: "process",
				Reason: "is set in a later message; one stream writes to the process of its first message"})
		}
		taken, err := write(ctx, p, m)
		if err != nil {
			return wireError(err)
		}
		if err := stream.Send(taken); err != nil {
			return err
		}
	}
}

func (s *processes) Resize(ctx context.Context,
	req *connect.Request[tendv1.ResizeRequest]) (*connect.Response[tendv1.ResizeResponse], error) {
	size, err := tendpb.ToSize("size", req.Msg.GetSize())
	if err != nil {
		return nil, wireError(err)
	}
	p, err := s.find(ctx, req.Msg.GetProcess())
	if err != nil {
		return nil, wireError(err)
	}
	r := process.Resize{To: size}
	if m := req.Msg.GetOnly(); m != nil {
		only, err := tendpb.ToSize("only", m)
		if err != nil {
			return nil, wireError(err)
		}
		r.Only = &only
	}
	before, err := p.Resize(ctx, r)
	return answer(&tendv1.ResizeResponse{Before: tendpb.Size(before)}, err)
}

func (s *processes) Signal(ctx context.Context,
	req *connect.Request[tendv1.SignalRequest]) (*connect.Response[tendv1.SignalResponse], error) {
	sig := req.Msg.GetSignal()
	if sig < 0 || sig > 64 {
		return nil, wireError(&process.InvalidError{Field: "signal", Reason: fmt.Sprintf("is %d; 0 (is anybody there?) to 64 are allowed", sig)})
	}
	scope, err := tendpb.Scope(req.Msg.GetScope())
	if err != nil {
		return nil, wireError(err)
	}
	return about(ctx, s, req.Msg.GetProcess(), func(p process.Process) (*tendv1.SignalResponse, error) {
		return &tendv1.SignalResponse{}, p.Signal(ctx, int(sig), scope)
	})
}

func (s *processes) Kill(ctx context.Context, req *connect.Request[tendv1.KillRequest]) (*connect.Response[tendv1.KillResponse], error) {
	return about(ctx, s, req.Msg.GetProcess(), func(p process.Process) (*tendv1.KillResponse, error) {
		res, err := p.Kill(ctx)
		return tendpb.KillResult(res), err
	})
}

func (s *processes) Trim(ctx context.Context, req *connect.Request[tendv1.TrimRequest]) (*connect.Response[tendv1.TrimResponse], error) {
	stream, err := tendpb.Stream("stream", req.Msg.GetStream())
	if err != nil {
		return nil, wireError(err)
	}
	before := req.Msg.GetBefore()
	if before < 0 {
		return nil, wireError(&process.InvalidError{Field: "before", Reason: fmt.Sprintf("is %d; an offset is 0 or more", before)})
	}
	return about(ctx, s, req.Msg.GetProcess(), func(p process.Process) (*tendv1.TrimResponse, error) {
		return &tendv1.TrimResponse{}, p.Trim(ctx, stream, before)
	})
}

func (s *processes) Pin(ctx context.Context, req *connect.Request[tendv1.PinRequest]) (*connect.Response[tendv1.PinResponse], error) {
	return about(ctx, s, req.Msg.GetProcess(), func(p process.Process) (*tendv1.PinResponse, error) {
		return &tendv1.PinResponse{}, p.Pin(ctx, req.Msg.GetPinned())
	})
}

func (s *processes) Remove(ctx context.Context,
	req *connect.Request[tendv1.RemoveRequest]) (*connect.Response[tendv1.RemoveResponse], error) {
	return about(ctx, s, req.Msg.GetProcess(), func(p process.Process) (*tendv1.RemoveResponse, error) {
		return &tendv1.RemoveResponse{}, p.Remove(ctx)
	})
}
