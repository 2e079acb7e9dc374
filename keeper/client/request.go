//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
)

// Signal implements process.Process.
func (p *proc) Signal(ctx context.Context, sig int, scope process.Scope) error {
	if sig < 0 || sig > 64 {
		return &process.InvalidError{Field: "signal", Reason: fmt.Sprintf("is %d; 0 to 64 are signals", sig)}
	}
	if scope > process.ScopeGroup {
		return &process.InvalidError{Field: "scope", Reason: "is unknown"}
	}
	_, _, err := p.call(ctx, wire.OpSignal, false, func(e *wire.Enc) { e.U32(uint32(sig)); e.U8(uint8(scope)) })
	return err
}

// Kill implements process.Process.
func (p *proc) Kill(ctx context.Context) (process.KillResult, error) {
	return p.kill(ctx, process.CauseKilled)
}

func (p *proc) kill(ctx context.Context, cause process.Cause) (process.KillResult, error) {
	rep, repeated, err := p.call(ctx, wire.OpKillNamed, true, func(e *wire.Enc) { e.U8(uint8(cause)) })
	if _, invalid := errors.AsType[*process.InvalidError](err); invalid || errors.Is(err, process.ErrUnsupported) { // a keeper of before
		rep, repeated, err = p.call(ctx, wire.OpKill, true, func(e *wire.Enc) { e.U8(uint8(cause)) })
	}
	if errors.Is(err, process.ErrExited) && repeated {
		return process.KillResult{Verified: true}, nil // our first try did it
	}
	if err != nil {
		return process.KillResult{}, err
	}
	k, err := wire.ParseKilled(rep.body)
	if err != nil {
		return process.KillResult{}, err
	}
	out := process.KillResult{Verified: k.Verified}
	for _, pid := range k.Survivors {
		out.Survivors = append(out.Survivors, int(pid))
	}
	for _, pid := range k.Strays {
		out.Strays = append(out.Strays, int(pid))
	}
	for i, pid := range slices.Concat(out.Survivors, out.Strays) {
		if i < len(k.Names) {
			if out.Names == nil {
				out.Names = map[int]string{}
			}
			out.Names[pid] = k.Names[i]
		}
	}
	return out, nil
}

// Resize implements process.Process.
func (p *proc) Resize(ctx context.Context, r process.Resize) (before process.Size, err error) {
	if p.spec.Load().PTY == nil {
		return before, process.ErrNoPTY
	}
	rep, _, err := p.call(ctx, wire.OpResize, true, func(e *wire.Enc) {
		e.U32(uint32(r.To.Cols))
		e.U32(uint32(r.To.Rows))
		if r.Only != nil {
			e.U32(uint32(r.Only.Cols))
			e.U32(uint32(r.Only.Rows))
		}
	})
	if err != nil {
		return before, err
	}
	d := wire.Dec{B: rep.body}
	before = process.Size{Cols: uint16(d.U32()), Rows: uint16(d.U32())}
	if d.Err() != nil { // a keeper of before does not tell it
		return process.Size{}, nil
	}
	return before, nil
}

// Trim implements process.Process.
func (p *proc) Trim(ctx context.Context, s process.Stream, before int64) error {
	if s < process.Stdout || s > process.PTY {
		return &process.InvalidError{Field: "stream", Reason: "is no output stream"}
	}
	if p.over() {
		return process.ErrNotFound
	}
	if p.final.Load() != nil {
		return p.trimFinished(s, before)
	}
	_, _, err := p.call(ctx, wire.OpTrim, true, func(e *wire.Enc) { e.U8(uint8(s)); e.U64(uint64(before)) })
	if errors.Is(err, process.ErrExited) {
		// Over a moment ago: the keeper leaves its files to us.
		if p.awaitFinal(ctx, settle); p.final.Load() != nil {
			return p.trimFinished(s, before)
		}
	}
	return err
}

// call asks the keeper about this process.
func (p *proc) call(ctx context.Context, op byte, again bool, body func(*wire.Enc)) (reply, bool, error) {
	if p.over() {
		return reply{}, false, process.ErrNotFound
	}
	if !p.live || p.final.Load() != nil {
		return reply{}, false, process.ErrExited
	}
	var e wire.Enc
	p.ref.Append(&e)
	if body != nil {
		body(&e)
	}
	rep, repeated, err := p.m.link.call(ctx, op, e.B, again)
	if err != nil {
		return rep, repeated, err
	}
	if rep.werr != nil {
		if rep.werr.Code == wire.CodeNotFound { // retired: it is over
			return rep, repeated, process.ErrExited
		}
		return rep, repeated, domainError(rep.werr, "")
	}
	return rep, repeated, nil
}
