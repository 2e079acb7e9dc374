package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// maxPiece bounds the output of one message in bytes, whatever the client
// allows: a stream holds its message twice (as data and encoded) for as long as
// its client does not read.
const maxPiece = 64 << 10

// source is what Reader and Watcher have in common.
type source interface {
	Next() (ev process.Event, ok bool, err error)
	Ready() <-chan struct{}
}

var (
	heartbeat = &tendv1.Event_Heartbeat{Heartbeat: &tendv1.Event_Empty{}}
	goingAway = &tendv1.Event_GoingAway{GoingAway: &tendv1.Event_Empty{}}
)

func (s *processes) Read(ctx context.Context, req *connect.Request[tendv1.ReadRequest],
	stream *connect.ServerStream[tendv1.ReadResponse]) error {
	opts, err := tendpb.ToReadOptions(req.Msg)
	if err != nil {
		return wireError(err)
	}
	p, err := s.find(ctx, req.Msg.GetProcess())
	if err != nil {
		return wireError(err)
	}
	return s.deliver(ctx, p, opts, func(ev *tendv1.Event) error {
		return stream.Send(&tendv1.ReadResponse{Event: ev})
	})
}

// maxForget bounds what one Run removes.
const maxForget = 100

func (s *processes) Run(ctx context.Context, req *connect.Request[tendv1.RunRequest],
	stream *connect.ServerStream[tendv1.RunResponse]) error {
	m := req.Msg
	opts, err := tendpb.ToReadOptions(m.GetRead())
	if err != nil {
		return wireError(err)
	}
	switch {
	case m.GetRead().GetProcess() != nil:
		return wireError(&process.InvalidError{Field: "read.process", Reason: "is set; the process is the one that is started"})
	case len(m.GetForget()) > maxForget:
		return wireError(&process.InvalidError{Field: "forget", Reason: fmt.Sprintf("names %d processes; %d are possible",
			len(m.GetForget()), maxForget)})
	}
	mgr, err := s.cfg.manager(ctx)
	if err != nil {
		return wireError(err)
	}
	p, err := start(ctx, mgr, m.GetSpec())
	if err != nil {
		return wireError(err)
	}
	if len(m.GetForget()) > 0 {
		forgotten := make(chan struct{})
		go func() { // while the process runs
			defer close(forgotten)
			remove(ctx, mgr, m.GetForget())
		}()
		defer func() {
			select {
			case <-forgotten:
			default:
				flush(ctx)
				<-forgotten
			}
		}()
	}
	return s.deliver(ctx, p, opts, func(ev *tendv1.Event) error {
		return stream.Send(&tendv1.RunResponse{Event: ev})
	})
}

// remove removes what can be removed: what cannot is kept for its time.
func remove(ctx context.Context, mgr process.Manager, ids []string) {
	defer func() { _ = recover() }() // a fault here must not end the server: no handler is above it
	for _, id := range ids {
		if p, err := mgr.Get(ctx, process.Selector{ID: process.ID(id)}); err == nil {
			_ = p.Remove(ctx)
		}
	}
}

// deliver sends the output and the facts of a process, from a hello on.
func (s *processes) deliver(ctx context.Context, p process.Process, opts process.ReadOptions, send func(*tendv1.Event) error) error {
	if err := settle(ctx, p, &opts); err != nil {
		return wireError(err)
	}
	if opts.MaxChunk == 0 || opts.MaxChunk > maxPiece {
		opts.MaxChunk = maxPiece
	}
	budget.Of(ctx).Release()
	r, err := p.Read(ctx, opts)
	if err != nil {
		return wireError(err)
	}
	defer r.Close()
	var from []*tendv1.StreamOffset
	for i, at := range opts.From {
		if i > 0 { // streams of output
			from = append(from, &tendv1.StreamOffset{Stream: tendv1.Stream(i), Offset: at})
		}
	}
	return s.pump(ctx, r, from, send)
}

// settle replaces "now" by the offset that it is.
func settle(ctx context.Context, p process.Process, opts *process.ReadOptions) error {
	wanted := false
	for _, at := range opts.From {
		wanted = wanted || at == process.FromNow
	}
	if !wanted {
		return nil
	}
	info, err := p.Info(ctx)
	if err != nil {
		return err
	}
	for i, at := range opts.From {
		if at == process.FromNow {
			si, _ := info.Stream(process.Stream(i))
			opts.From[i] = si.End
		}
	}
	return nil
}

func (s *processes) Events(ctx context.Context, _ *connect.Request[tendv1.EventsRequest],
	stream *connect.ServerStream[tendv1.EventsResponse]) error {
	mgr, err := s.cfg.manager(ctx)
	if err != nil {
		return wireError(err)
	}
	w, err := mgr.Watch(ctx)
	if err != nil {
		return wireError(err)
	}
	defer w.Close()
	return s.pump(ctx, w, nil, func(ev *tendv1.Event) error {
		return stream.Send(&tendv1.EventsResponse{Event: ev})
	})
}

// pump moves events from src to send until src ends, the client leaves or the
// server stops. It holds no buffer: an idle stream costs its request and a
// timer.
func (s *processes) pump(ctx context.Context, src source, from []*tendv1.StreamOffset, send func(*tendv1.Event) error) error {
	hello := &tendv1.Event_Hello{Instance: s.cfg.Instance, From: from}
	if err := send(&tendv1.Event{Fact: &tendv1.Event_Hello_{Hello: hello}}); err != nil {
		return err
	}
	beat := time.NewTimer(s.cfg.Heartbeat)
	defer beat.Stop()
	var held budget.Charge
	held.Like(budget.Of(ctx))
	for {
		ev, ok, err := src.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return wireError(err)
		case ok:
			if err := protocol.InPieces(&held, ev, func(ev process.Event) error { return send(tendpb.Event(&ev)) }); err != nil {
				return err
			}
			// A stream that always has more must notice, too, that the server
			// stops or the client is gone.
			select {
			case <-s.stopping:
				return send(&tendv1.Event{Fact: goingAway})
			case <-ctx.Done():
				return wireError(ctx.Err())
			default:
			}
			continue
		}
		flush(ctx)
		beat.Reset(s.cfg.Heartbeat)
		select {
		case <-src.Ready():
		case <-beat.C:
			if err := send(&tendv1.Event{Fact: heartbeat}); err != nil {
				return err
			}
		case <-s.stopping:
			return send(&tendv1.Event{Fact: goingAway})
		case <-ctx.Done():
			return wireError(ctx.Err())
		}
	}
}

func (s *processes) Wait(ctx context.Context, req *connect.Request[tendv1.WaitRequest],
	stream *connect.ServerStream[tendv1.WaitResponse]) error {
	until, err := tendpb.ToUntil(req.Msg)
	if err != nil {
		return wireError(err)
	}
	p, err := s.find(ctx, req.Msg.GetProcess())
	if err != nil {
		return wireError(err)
	}
	// The wait runs beside the heartbeats, and ends with this call.
	type outcome struct {
		res process.WaitResult
		err error
	}
	waiting, cancel := context.WithCancel(ctx)
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		// A fault here must not end the server: no handler is above it.
		defer func() {
			if v := recover(); v != nil {
				o.err = fmt.Errorf("wait hit a fault of the server: %v", v)
			}
			done <- o
		}()
		o.res, o.err = p.Wait(waiting, until)
	}()
	ended := false
	defer func() {
		cancel()
		if !ended {
			<-done
		}
	}()
	beat := time.NewTicker(s.cfg.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case o := <-done:
			ended = true
			if o.err != nil {
				return wireError(o.err)
			}
			return stream.Send(&tendv1.WaitResponse{Answer: &tendv1.WaitResponse_Result{Result: tendpb.WaitResult(&o.res)}})
		case <-beat.C:
			if err := stream.Send(&tendv1.WaitResponse{Answer: &tendv1.WaitResponse_Heartbeat{Heartbeat: heartbeat.Heartbeat}}); err != nil {
				return err
			}
		case <-s.stopping:
			return stream.Send(&tendv1.WaitResponse{Answer: &tendv1.WaitResponse_GoingAway{GoingAway: goingAway.GoingAway}})
		case <-ctx.Done():
			return wireError(ctx.Err())
		}
	}
}
