package tend

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// remote is a process of the server: process.Process over the network.
type remote struct {
	client *Client
	id     process.ID
	// killed: the caller asked for its death through this handle. Its streams
	// are not made again from then on.
	killed atomic.Bool
	writer writer
}

var _ process.Process = (*remote)(nil)

func (p *remote) ID() process.ID { return p.id }

func (p *remote) selector() *tendv1.Selector {
	return tendpb.Selector(process.Selector{ID: p.id})
}

func (p *remote) Info(ctx context.Context) (process.Info, error) {
	return p.client.info(ctx, process.Selector{ID: p.id})
}

// Signal is not repeated: a signal may have an effect each time it is sent.
func (p *remote) Signal(ctx context.Context, sig int, scope process.Scope) error {
	req := &tendv1.SignalRequest{Process: p.selector(), Signal: int32(sig), Scope: tendv1.Scope(scope)}
	return p.client.once(ctx, unary(p.client.rpc.Signal, req, nil))
}

// Kill is not repeated either, and what is killed is not reconnected to.
func (p *remote) Kill(ctx context.Context) (process.KillResult, error) {
	p.killed.Store(true)
	var res process.KillResult
	err := p.client.once(ctx, unary(p.client.rpc.Kill, &tendv1.KillRequest{Process: p.selector()}, func(m *tendv1.KillResponse) error {
		res = tendpb.ToKillResult(m)
		return checkKill(res)
	}))
	if errors.Is(err, process.ErrExited) {
		p.killed.Store(false) // nothing was killed
	}
	return res, err
}

func (p *remote) Resize(ctx context.Context, r process.Resize) (before process.Size, err error) {
	req := &tendv1.ResizeRequest{Process: p.selector(), Size: tendpb.Size(r.To)}
	if r.Only != nil {
		req.Only = tendpb.Size(*r.Only)
	}
	err = p.client.call(ctx, unary(p.client.rpc.Resize, req, func(m *tendv1.ResizeResponse) (err error) {
		before, err = tendpb.ToSize("before", m.GetBefore())
		return err
	}))
	return before, err
}

func (p *remote) Trim(ctx context.Context, s process.Stream, before int64) error {
	req := &tendv1.TrimRequest{Process: p.selector(), Stream: tendv1.Stream(s), Before: before}
	return p.client.call(ctx, unary(p.client.rpc.Trim, req, nil))
}

func (p *remote) Pin(ctx context.Context, pinned bool) error {
	req := &tendv1.PinRequest{Process: p.selector(), Pinned: pinned}
	return p.client.call(ctx, unary(p.client.rpc.Pin, req, nil))
}

// Remove is repeated when the answer is lost; that a repeated one finds
// nothing means that the first one did its work.
func (p *remote) Remove(ctx context.Context) error {
	attempts := 0
	remove := unary(p.client.rpc.Remove, &tendv1.RemoveRequest{Process: p.selector()}, nil)
	err := p.client.call(ctx, func(ctx context.Context) error {
		attempts++
		return remove(ctx)
	})
	if attempts > 1 && errors.Is(err, process.ErrNotFound) {
		return nil
	}
	return err
}

// afterKill reports whether an error is the last for a process whose death was
// asked for. A server that goes away in order is followed even then.
func (p *remote) afterKill(err error) bool { return p.killed.Load() && !errors.Is(err, errAway) }

// Wait keeps one stream open, which the server fills with heartbeats, and
// opens it again when it is lost.
func (p *remote) Wait(ctx context.Context, until process.Until) (process.WaitResult, error) {
	req := tendpb.Until(until)
	req.Process = p.selector()
	var res process.WaitResult
	ended := connect.NewError(connect.CodeUnavailable, errors.New("the server ended the wait without a result"))
	err := p.client.repeat(ctx, "wait", p.afterKill, func(a *attempts) error {
		return receive(ctx, p.client, p.client.rpc.Wait, req, ended, func(m *tendv1.WaitResponse) error {
			switch answer := m.GetAnswer().(type) {
			case *tendv1.WaitResponse_Result:
				res = tendpb.ToWaitResult(answer.Result)
				return cmp.Or(checkWait(&res), io.EOF)
			case *tendv1.WaitResponse_GoingAway:
				return errAway
			}
			a.progress()
			return nil
		})
	})
	return res, err
}
