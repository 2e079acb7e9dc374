//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tend-run/tend/internal/core/wire"
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
	_, _, err := p.call(ctx, wire.OpSignal, false, wire.Signal{Ref: p.ref, Signal: uint32(sig), Scope: scope})
	return err
}

// Kill implements process.Process.
func (p *proc) Kill(ctx context.Context) (process.KillResult, error) {
	return p.kill(ctx, process.CauseKilled)
}

func (p *proc) kill(ctx context.Context, cause process.Cause) (process.KillResult, error) {
	rep, repeated, err := p.call(ctx, wire.OpKillNamed, true, wire.Kill{Ref: p.ref, Cause: cause})
	if _, invalid := errors.AsType[*process.InvalidError](err); invalid || errors.Is(err, process.ErrUnsupported) { // a keeper of before
		rep, repeated, err = p.call(ctx, wire.OpKill, true, wire.Kill{Ref: p.ref, Cause: cause})
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
	rep, _, err := p.call(ctx, wire.OpResize, true, wire.Resize{Ref: p.ref, Resize: r})
	if err != nil {
		return before, err
	}
	was, err := wire.ParseResized(rep.body)
	if err != nil { // a keeper of before does not report it
		return process.Size{}, nil
	}
	return process.Size(was), nil
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
	_, _, err := p.call(ctx, wire.OpTrim, true, wire.Trim{Ref: p.ref, Stream: s, Before: before})
	if errors.Is(err, process.ErrExited) {
		// Over a moment ago: the keeper leaves its files to us.
		if p.awaitFinal(ctx, settle); p.final.Load() != nil {
			return p.trimFinished(s, before)
		}
	}
	return err
}

// call asks the keeper about this process.
func (p *proc) call(ctx context.Context, op byte, again bool, body wire.Body) (reply, bool, error) {
	if p.over() {
		return reply{}, false, process.ErrNotFound
	}
	if !p.live || p.final.Load() != nil {
		return reply{}, false, process.ErrExited
	}
	rep, repeated, err := p.m.link.call(ctx, op, body, again)
	if err != nil {
		return rep, repeated, err
	}
	if rep.werr != nil {
		if rep.werr.Code == wire.CodeNotFound { // retired: it is over
			return rep, repeated, process.ErrExited
		}
		return rep, repeated, domainError(rep.werr)
	}
	return rep, repeated, nil
}
