//go:build linux

package client

import (
	"context"
	"time"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/wire"
)

// Boxes returns the engine that creates boxes through the keeper. If the keeper dies
// before it answers a request, the request goes to the next keeper: a box that was
// already created is found, and a half-created one is undone.
func (m *Manager) Boxes() box.Engine { return boxes{m} }

type boxes struct{ m *Manager }

var _ box.Engine = boxes{}

// Can implements box.Engine.
func (b boxes) Can(ctx context.Context) (box.Can, error) {
	rep, err := b.call(ctx, wire.OpCellCan, nil)
	if err != nil {
		return box.Can{}, err
	}
	if rep.werr != nil { // a keeper of before
		return box.Can{Missing: []box.Missing{{Reason: rep.werr.What}}}, nil
	}
	c, err := wire.ParseCellCan(rep.body)
	return c.Can, err
}

// NewID implements box.Engine. A server may be newer than its keeper: while it is upgraded, or
// when it alone is.
func (b boxes) NewID() box.ID {
	if b.m.knows("box_ids") {
		return box.NewID()
	}
	return box.NewUUID()
}

// Make implements box.Engine.
func (b boxes) Make(ctx context.Context, spec box.Spec) (box.Info, error) {
	if err := spec.Validate(); err != nil {
		return box.Info{}, err
	}
	return b.info(ctx, wire.OpCellMake, &wire.CellSpec{Spec: spec})
}

// Network implements box.Engine.
func (b boxes) Network(ctx context.Context, id box.ID) (box.Info, error) {
	return b.info(ctx, wire.OpCellNet, wire.CellID{ID: id})
}

// Freeze implements box.Engine.
func (b boxes) Freeze(ctx context.Context, id box.ID, frozen bool) error {
	return b.done(ctx, wire.OpCellFreeze, wire.CellFreeze{ID: id, Frozen: frozen})
}

// Limit implements box.Engine.
func (b boxes) Limit(ctx context.Context, id box.ID, l box.Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	return b.done(ctx, wire.OpCellLimit, wire.CellLimit{ID: id, Limits: l})
}

// Usage implements box.Engine.
func (b boxes) Usage(ctx context.Context, id box.ID) (box.Usage, error) {
	rep, err := b.ask(ctx, wire.OpCellUsage, wire.CellID{ID: id})
	if err != nil {
		return box.Usage{}, err
	}
	u, err := wire.ParseCellUsage(rep.body)
	return u.Usage, err
}

// End implements box.Engine.
func (b boxes) End(ctx context.Context, id box.ID) error {
	return b.done(ctx, wire.OpCellEnd, wire.CellID{ID: id})
}

// List implements box.Engine.
func (b boxes) List(ctx context.Context) ([]box.Info, error) {
	rep, err := b.ask(ctx, wire.OpCellList, nil)
	if err != nil {
		return nil, err
	}
	return wire.ParseCellInfos(rep.body)
}

func (b boxes) info(ctx context.Context, op byte, body wire.Body) (box.Info, error) {
	rep, err := b.ask(ctx, op, body)
	if err != nil {
		return box.Info{}, err
	}
	i, err := wire.ParseCellInfo(rep.body)
	return i.Info, err
}

func (b boxes) done(ctx context.Context, op byte, body wire.Body) error {
	_, err := b.ask(ctx, op, body)
	return err
}

// ask is call, with the keeper's error.
func (b boxes) ask(ctx context.Context, op byte, body wire.Body) (reply, error) {
	rep, err := b.call(ctx, op, body)
	if err == nil && rep.werr != nil {
		err = domainError(rep.werr)
	}
	return rep, err
}

// call repeats a request as long as an upgrade of the keeper is under way.
func (b boxes) call(ctx context.Context, op byte, body wire.Body) (reply, error) {
	for {
		rep, _, err := b.m.link.call(ctx, op, body, true)
		if err != nil || rep.werr == nil || rep.werr.Code != wire.CodeBusy {
			return rep, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return rep, err
		}
	}
}
