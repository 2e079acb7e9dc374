//go:build linux

package keeper

import (
	"github.com/tend-run/tend/internal/core/wire"
)

// handleCell handles a request about boxes, if it is one. Each may wait for the kernel, so
// each has a goroutine: a server asks about many boxes on one connection.
func (c *conn) handleCell(number uint64, op uint8, body []byte) bool {
	var do func() (wire.Body, *wire.Error)
	var err error
	switch op {
	case wire.OpCellMake:
		var s wire.CellSpec
		s, err = wire.ParseCellSpec(body)
		do = func() (wire.Body, *wire.Error) { return bodyOf(c.k.makeCell(&s.Spec)) }
	case wire.OpCellNet:
		var r wire.CellID
		r, err = wire.ParseCellID(body)
		do = func() (wire.Body, *wire.Error) { return bodyOf(c.k.networkCell(r.ID)) }
	case wire.OpCellFreeze:
		var r wire.CellFreeze
		r, err = wire.ParseCellFreeze(body)
		do = func() (wire.Body, *wire.Error) { return nil, c.k.freezeCell(r.ID, r.Frozen) }
	case wire.OpCellLimit:
		var r wire.CellLimit
		r, err = wire.ParseCellLimit(body)
		do = func() (wire.Body, *wire.Error) { return nil, c.k.limitCell(r.ID, r.Limits) }
	case wire.OpCellUsage:
		var r wire.CellID
		r, err = wire.ParseCellID(body)
		do = func() (wire.Body, *wire.Error) { return bodyOf(c.k.usageOfCell(r.ID)) }
	case wire.OpCellEnd:
		var r wire.CellID
		r, err = wire.ParseCellID(body)
		do = func() (wire.Body, *wire.Error) { return nil, c.k.endCell(r.ID) }
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
