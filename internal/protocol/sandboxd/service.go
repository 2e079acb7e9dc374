package sandboxd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/sandboxd/process"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/process"
)

const (
	// maxMessage bounds a message of a client, in bytes, as gRPC's default does.
	maxMessage = 4 << 20
	// maxExecute bounds what Execute answers with, in bytes. Clients take 4 MiB unless they are told otherwise.
	maxExecute = 64 << 20
	// Drains are how long output is waited for after the exit, while a descendant holds a pipe open.
	drainStart, drainExecute = 5 * time.Second, 10 * time.Second

	keepHeader   = "Tend-Keep"        // of Start: 1 for a process that outlives its stream
	signalHeader = "Tend-Exit-Signal" // a trailer: the signal that has ended the process
)

// grpc answers on the listener for gRPC: to it alone, and over HTTP/2 alone, so no web page can call.
func (f *Face) grpc() http.Handler {
	rpc, s := http.NewServeMux(), &service{f}
	options := []connect.HandlerOption{connect.WithReadMaxBytes(maxMessage),
		connect.WithCodec(frameCodec{}), connect.WithCompression("gzip", nil, nil),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, v any) error {
			f.cfg.Log.Error("a request hit a fault", "procedure", spec.Procedure, "fault", v)
			return connect.NewError(connect.CodeInternal, errors.New(spec.Procedure+" hit a fault of the server; nothing else ended"))
		})}
	for name, m := range map[string]method{
		"Execute": {new(pb.ExecuteRequest), s.execute}, "WriteStdin": {new(pb.WriteStdinRequest), s.writeStdin},
		"SendSignal": {new(pb.SendSignalRequest), s.sendSignal}, "ResizeTTY": {new(pb.ResizeTTYRequest), s.resizeTTY},
	} {
		rpc.Handle(procedure+name, connect.NewUnaryHandler(procedure+name, m.answer, options...))
	}
	rpc.Handle(procedure+"Start", connect.NewServerStreamHandler(procedure+"Start", s.start, options...))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind := r.Header.Get("Content-Type"); kind != "application/grpc" && kind != "application/grpc+proto" {
			http.Error(w, "this listener is for gRPC", http.StatusUnsupportedMediaType)
			return
		}
		body := &chargedBody{ReadCloser: r.Body, charge: f.cfg.Budget.Charge()}
		defer body.charge.Release()
		r = r.WithContext(budget.With(r.Context(), body.charge))
		r.Body = body
		rpc.ServeHTTP(w, r)
	})
}

// chargedBody charges for a message as it comes, and once more for what it is decoded to. A small one is free:
// a process can always be ended.
type chargedBody struct {
	io.ReadCloser
	charge *budget.Charge
	come   int
}

func (b *chargedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.come += n; b.come > protocol.SmallPiece {
		if busy := b.charge.Add(2 * int64(n)); busy != nil {
			return 0, connect.NewError(connect.CodeResourceExhausted, busy)
		}
	}
	return n, err
}

// procedure begins the names of all methods.
const procedure = "/process.v1.ProcessService/"

// frame is a message as it is on the wire. All methods have it in common: each type that connect's handlers are
// compiled for makes the program 15 KB larger.
type frame struct{ data []byte }

// frameCodec is connect's codec for frames.
type frameCodec struct{}

func (frameCodec) Name() string { return "proto" }

func (frameCodec) Marshal(m any) ([]byte, error) { return m.(*frame).data, nil }

func (frameCodec) Unmarshal(data []byte, m any) error {
	m.(*frame).data = bytes.Clone(data) // connect uses it again
	return nil
}

// encode makes the frame of a message.
func encode(m proto.Message) (*frame, error) {
	data, err := protocol.ProtoCodec{}.Marshal(m)
	return &frame{data}, err
}

// decode reads the message of a frame.
func (f *frame) decode(m proto.Message) error {
	if err := (protocol.ProtoCodec{}).Unmarshal(f.data, m); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	f.data = nil
	return nil
}

// method is one that answers once.
type method struct {
	request proto.Message // an empty one
	do      func(ctx context.Context, req proto.Message, trailer http.Header) (proto.Message, error)
}

func (m method) answer(ctx context.Context, in *connect.Request[frame]) (*connect.Response[frame], error) {
	req := m.request.ProtoReflect().New().Interface()
	if err := in.Msg.decode(req); err != nil {
		return nil, err
	}
	res := connect.NewResponse[frame](nil)
	out, err := m.do(ctx, req, res.Trailer())
	if err == nil {
		res.Msg, err = encode(out)
	}
	if err != nil {
		return nil, wireErr(err)
	}
	return res, nil
}

type service struct{ f *Face }

// start is the method Start.
func (s *service) start(ctx context.Context, in *connect.Request[frame], out *connect.ServerStream[frame]) error {
	ctx, cancel := s.f.joined(ctx)
	defer cancel()
	req := new(pb.StartRequest)
	err := in.Msg.decode(req)
	if err == nil {
		err = s.stream(ctx, req, in.Header().Get(keepHeader) == "1", out.ResponseTrailer(), func(res *pb.StartResponse) error {
			f, err := encode(res)
			if err == nil {
				err = out.Send(f)
			}
			return err
		})
	}
	return wireErr(err)
}

func (s *service) stream(ctx context.Context, req *pb.StartRequest, keep bool, trailer http.Header,
	send func(*pb.StartResponse) error) (err error) {
	f, spec := s.f, process.Spec{Stdin: process.StdinPipe}
	if pty := req.Pty; pty != nil {
		size, err := sizeOf(pty.Cols, pty.Rows)
		if err != nil {
			return err
		}
		if size.Cols == 0 || size.Rows == 0 {
			size = process.Size{}
		}
		spec.Stdin, spec.PTY = process.StdinNull, &size
	}
	number, err := f.next(ctx)
	if err != nil {
		return err
	}
	spec.Tag = tagOf(number)
	p, err := f.begin(ctx, req.Config, spec)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.open[number] = running{p, spec.PTY != nil}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.open, number)
		f.mu.Unlock()
	}()
	if !keep {
		defer func() {
			if err != nil {
				f.abandoned(ctx, p)
			}
		}()
	}
	err = send(&pb.StartResponse{Event: &pb.StartResponse_Init{Init: &pb.InitEvent{ProcessId: number, TendId: string(p.ID())}}})
	if err != nil {
		return err
	}
	exit, err := follow(ctx, p, process.ReadOptions{Drain: drainStart, MaxChunk: f.cfg.Chunk}, func(ev process.Event) error {
		res := &pb.StartResponse{Event: &pb.StartResponse_Stdout{Stdout: ev.Data}}
		if ev.Stream == process.Stderr {
			res.Event = &pb.StartResponse_Stderr{Stderr: ev.Data}
		}
		return send(res)
	})
	if err != nil {
		return err
	}
	code, err := codeOfExit(exit, trailer)
	if err != nil {
		return err
	}
	return send(&pb.StartResponse{Event: &pb.StartResponse_Exit{Exit: &pb.ExitEvent{ExitCode: code}}})
}

// follow reads the output of a process to its end.
func follow(ctx context.Context, p process.Process, o process.ReadOptions, output func(process.Event) error) (*process.Exit, error) {
	r, err := p.Read(ctx, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s := &sink{output: output}
	err = protocol.Stream(ctx, r, s, 0)
	return s.exit, err
}

// sink implements [protocol.Sink].
type sink struct {
	output func(process.Event) error
	exit   *process.Exit
}

func (s *sink) Event(ev process.Event, _ protocol.Output) error {
	switch ev.Kind {
	case process.EventOutput:
		return s.output(ev)
	case process.EventGap:
		return connect.NewError(connect.CodeDataLoss, &process.GapError{Gap: ev.Gap})
	case process.EventExited:
		s.exit = ev.Exit
	}
	return nil
}

func (s *sink) Flush() error     { return nil } // each message is sent at once
func (s *sink) Keepalive() error { return nil }

// codeOfExit is the code that the protocol has for an exit; the trailer says which signal it was.
func codeOfExit(e *process.Exit, trailer http.Header) (int32, error) {
	switch {
	case e == nil || e.Lost():
		return 0, connect.NewError(connect.CodeUnavailable, errors.New("nobody has seen how the process ended"))
	case e.Signal != 0:
		trailer.Set(signalHeader, strconv.Itoa(e.Signal))
		return -1, nil
	}
	return int32(e.Code), nil
}

// execute is the method Execute.
func (s *service) execute(ctx context.Context, m proto.Message, trailer http.Header) (proto.Message, error) {
	ctx, cancel := s.f.joined(ctx)
	defer cancel()
	p, err := s.f.begin(ctx, m.(*pb.ExecuteRequest).Config, process.Spec{Tag: strings.TrimSuffix(tagPrefix, "-")})
	if err != nil {
		return nil, err
	}
	res := &pb.ExecuteResponse{}
	var over error
	exit, err := follow(ctx, p, process.ReadOptions{Drain: drainExecute}, func(ev process.Event) error {
		to := &res.Stdout
		if ev.Stream == process.Stderr {
			to = &res.Stderr
		}
		if over == nil && len(res.Stdout)+len(res.Stderr)+len(ev.Data) > maxExecute {
			over = connect.NewError(connect.CodeResourceExhausted,
				fmt.Errorf("the output has more than %d bytes; it is kept: tend logs %s", maxExecute, p.ID()))
		}
		if over == nil { // the text as it grows, and its message
			over = budget.Of(ctx).Add(3 * int64(len(ev.Data)))
		}
		if over != nil { // it runs to its end all the same
			res.Stdout, res.Stderr = nil, nil
			budget.Of(ctx).Release()
			return nil
		}
		*to = append(*to, ev.Data...)
		return nil
	})
	if err == nil {
		res.ExitCode, err = codeOfExit(exit, trailer)
	}
	if err = cmp.Or(err, over); err != nil {
		s.f.abandoned(ctx, p)
		return nil, err
	}
	return res, nil
}

// writeStdin is the method WriteStdin. Input is accepted when it is written down, whether the process reads or not.
func (s *service) writeStdin(ctx context.Context, m proto.Message, _ http.Header) (proto.Message, error) {
	req := m.(*pb.WriteStdinRequest)
	p, err := s.f.find(ctx, req.ProcessId)
	if err != nil {
		return nil, err
	}
	in := process.Input{Data: req.GetInput(), EOF: req.GetEof() != nil && !p.pty}
	if req.GetEof() != nil && p.pty {
		in.Data = []byte{4}
	}
	if in.EOF || len(in.Data) > 0 {
		_, err = p.Write(ctx, in)
	}
	if req.GetEof() != nil && (errors.Is(err, process.ErrStdinClosed) || errors.Is(err, process.ErrExited)) {
		err = nil // it is as it was asked for
	}
	return &pb.WriteStdinResponse{}, err
}

// sendSignal is the method SendSignal.
func (s *service) sendSignal(ctx context.Context, m proto.Message, _ http.Header) (proto.Message, error) {
	req := m.(*pb.SendSignalRequest)
	p, err := s.f.find(ctx, req.ProcessId)
	if err == nil {
		switch req.Signal {
		case pb.Signal_SIGNAL_SIGINT, pb.Signal_SIGNAL_SIGTERM, pb.Signal_SIGNAL_SIGKILL:
			err = p.Signal(ctx, int(req.Signal), process.ScopeGroup)
		default:
			err = &process.InvalidError{Field: "signal",
				Reason: fmt.Sprintf("is %d; SIGINT (2), SIGKILL (9) and SIGTERM (15) are allowed", req.Signal)}
		}
	}
	if errors.Is(err, process.ErrExited) {
		err = nil // its stream is open still
	}
	return &pb.SendSignalResponse{}, err
}

// resizeTTY is the method ResizeTTY.
func (s *service) resizeTTY(ctx context.Context, m proto.Message, _ http.Header) (proto.Message, error) {
	req := m.(*pb.ResizeTTYRequest)
	p, err := s.f.find(ctx, req.ProcessId)
	var size process.Size
	if err == nil {
		size, err = sizeOf(req.Cols, req.Rows)
	}
	if err == nil {
		_, err = p.Resize(ctx, process.Resize{To: size})
	}
	if errors.Is(err, process.ErrExited) {
		err = connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return &pb.ResizeTTYResponse{}, err
}

// sizeOf is the size of a terminal.
func sizeOf(cols, rows uint32) (process.Size, error) {
	for _, n := range []struct {
		field string
		n     uint32
	}{{"cols", cols}, {"rows", rows}} {
		if n.n > process.MaxTermSide {
			return process.Size{}, &process.InvalidError{Field: n.field, Reason: fmt.Sprintf("is %d; the limit is %d", n.n, process.MaxTermSide)}
		}
	}
	return process.Size{Cols: uint16(cols), Rows: uint16(rows)}, nil
}
