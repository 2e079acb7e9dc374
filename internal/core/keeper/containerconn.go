//go:build linux

package keeper

import (
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/wire"
)

// handleCell handles a request about containers, if it is one. Each may wait for the kernel, so
// each has a goroutine: a server asks about many containers on one connection.
func (c *conn) handleContainer(number uint64, op uint8, body []byte) bool {
	var do func() (wire.Body, *wire.Error)
	var err error
	// of is for a request that names a container and no more.
	of := func(what func(id container.ID) (wire.Body, *wire.Error)) {
		r, perr := wire.ParseContainerID(body)
		do, err = func() (wire.Body, *wire.Error) { return what(r.ID) }, perr
	}
	switch op {
	case wire.OpContainerMake:
		var s wire.ContainerSpec
		s, err = wire.ParseContainerSpec(body)
		do = func() (wire.Body, *wire.Error) { return bodyOf(c.k.makeContainer(&s.Spec)) }
	case wire.OpContainerNet:
		of(func(id container.ID) (wire.Body, *wire.Error) { return bodyOf(c.k.networkContainer(id)) })
	case wire.OpContainerFreeze:
		var r wire.ContainerFreeze
		r, err = wire.ParseContainerFreeze(body)
		do = func() (wire.Body, *wire.Error) { return nil, c.k.freezeContainer(r.ID, r.Frozen) }
	case wire.OpContainerLimit:
		var r wire.ContainerLimit
		r, err = wire.ParseContainerLimit(body)
		do = func() (wire.Body, *wire.Error) { return nil, c.k.limitContainer(r.ID, r.Limits) }
	case wire.OpContainerUsage:
		of(func(id container.ID) (wire.Body, *wire.Error) { return bodyOf(c.k.usageOfContainer(id)) })
	case wire.OpContainerEnd:
		of(func(id container.ID) (wire.Body, *wire.Error) { return nil, c.k.endContainer(id) })
	case wire.OpContainerList:
		do = func() (wire.Body, *wire.Error) { return c.k.listContainers(), nil }
	case wire.OpContainerCan:
		do = func() (wire.Body, *wire.Error) { return bodyOf(c.k.canContainers()) }
	default:
		return false
	}
	if err != nil {
		c.answer(number, invalid(err), nil)
		return true
	}
	go func() {
		out, werr := do()
		c.answer(number, werr, out)
	}()
	return true
}

// bodyOf makes a body of a pointer that is nil after an error.
func bodyOf[T wire.Body](body T, werr *wire.Error) (wire.Body, *wire.Error) {
	if werr != nil {
		return nil, werr
	}
	return body, nil
}
