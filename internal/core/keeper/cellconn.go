//go:build linux

package keeper

import (
	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/wire"
)

// handleCell handles a request about boxes, if it is one. Each may wait for the kernel, so
// each has a goroutine: a server asks about many boxes on one connection.
func (c *conn) handleCell(number uint64, op uint8, body []byte) bool {
	var do func() (wire.Body, *wire.Error)
	var err error
	// of is for a request that names a box and no more.
	of := func(what func(id box.ID) (wire.Body, *wire.Error)) {
		r, perr := wire.ParseCellID(body)
		do, err = func() (wire.Body, *wire.Error) { return what(r.ID) }, perr
	}
	switch op {
	case wire.OpCellMake:
		var s wire.CellSpec
		s, err = wire.ParseCellSpec(body)
		do = func() (wire.Body, *wire.Error) { return bodyOf(c.k.makeCell(&s.Spec)) }
	case wire.OpCellNet:
		of(func(id box.ID) (wire.Body, *wire.Error) { return bodyOf(c.k.networkCell(id)) })
	case wire.OpCellFreeze:
		var r wire.CellFreeze
		r, err = wire.ParseCellFreeze(body)
		do = func() (wire.Body, *wire.Error) { return nil, c.k.freezeCell(r.ID, r.Frozen) }
	case wire.OpCellLimit:
		var r wire.CellLimit
		r, err = wire.ParseCellLimit(body)
		do = func() (wire.Body, *wire.Error) { return nil, c.k.limitCell(r.ID, r.Limits) }
	case wire.OpCellUsage:
		of(func(id box.ID) (wire.Body, *wire.Error) { return bodyOf(c.k.usageOfCell(id)) })
	case wire.OpCellEnd:
		of(func(id box.ID) (wire.Body, *wire.Error) { return nil, c.k.endCell(id) })
	case wire.OpCellList:
		do = func() (wire.Body, *wire.Error) { return c.k.listCells(), nil }
	case wire.OpCellCan:
		do = func() (wire.Body, *wire.Error) { return bodyOf(c.k.canCells()) }
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
