//go:build linux

package client

import (
	"context"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/wire"
)

// Containers returns the engine that creates containers through the keeper. If the keeper dies
// before it answers a request, the request goes to the next keeper: a container that was
// already created is found, and a half-created one is undone.
func (m *Manager) Containers() container.Engine { return containers{m} }

type containers struct{ m *Manager }

var _ container.Engine = containers{}

// Can implements container.Engine.
func (b containers) Can(ctx context.Context) (container.Can, error) {
	rep, err := b.call(ctx, wire.OpContainerCan, nil)
	if err != nil {
		return container.Can{}, err
	}
	if rep.werr != nil { // a keeper of before
		return container.Can{Missing: []container.Missing{{Reason: rep.werr.What}}}, nil
	}
	c, err := wire.ParseContainerCan(rep.body)
	return c.Can, err
}

// NewID implements container.Engine. A server may be newer than its keeper: while it is upgraded, or
// when it alone is.
func (b containers) NewID() container.ID {
	if b.m.knows("box_ids") {
		return container.NewID()
	}
	return container.NewUUID()
}

// Make implements container.Engine.
func (b containers) Make(ctx context.Context, spec container.Spec) (container.Info, error) {
	if err := spec.Validate(); err != nil {
		return container.Info{}, err
	}
	return b.info(ctx, wire.OpContainerMake, &wire.ContainerSpec{Spec: spec})
}

// Network implements container.Engine.
func (b containers) Network(ctx context.Context, id container.ID) (container.Info, error) {
	return b.info(ctx, wire.OpContainerNet, wire.ContainerID{ID: id})
}

// Freeze implements container.Engine.
func (b containers) Freeze(ctx context.Context, id container.ID, frozen bool) error {
	return b.done(ctx, wire.OpContainerFreeze, wire.ContainerFreeze{ID: id, Frozen: frozen})
}

// Limit implements container.Engine.
func (b containers) Limit(ctx context.Context, id container.ID, l container.Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	return b.done(ctx, wire.OpContainerLimit, wire.ContainerLimit{ID: id, Limits: l})
}

// Usage implements container.Engine.
func (b containers) Usage(ctx context.Context, id container.ID) (container.Usage, error) {
	rep, err := b.ask(ctx, wire.OpContainerUsage, wire.ContainerID{ID: id})
	if err != nil {
		return container.Usage{}, err
	}
	u, err := wire.ParseContainerUsage(rep.body)
	return u.Usage, err
}

// End implements container.Engine.
func (b containers) End(ctx context.Context, id container.ID) error {
	return b.done(ctx, wire.OpContainerEnd, wire.ContainerID{ID: id})
}

// List implements container.Engine.
func (b containers) List(ctx context.Context) ([]container.Info, error) {
	rep, err := b.ask(ctx, wire.OpContainerList, nil)
	if err != nil {
		return nil, err
	}
	return wire.ParseContainerInfos(rep.body)
}

func (b containers) info(ctx context.Context, op byte, body wire.Body) (container.Info, error) {
	rep, err := b.ask(ctx, op, body)
	if err != nil {
		return container.Info{}, err
	}
	i, err := wire.ParseContainerInfo(rep.body)
	return i.Info, err
}

func (b containers) done(ctx context.Context, op byte, body wire.Body) error {
	_, err := b.ask(ctx, op, body)
	return err
}

// ask is call, with the keeper's error.
func (b containers) ask(ctx context.Context, op byte, body wire.Body) (reply, error) {
	rep, err := b.call(ctx, op, body)
	if err == nil && rep.werr != nil {
		err = domainError(rep.werr)
	}
	return rep, err
}

// call repeats a request as long as an upgrade of the keeper is under way.
func (b containers) call(ctx context.Context, op byte, body wire.Body) (reply, error) {
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
