package protocol

import (
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

// SmallPiece of output is sent without being charged for, in bytes.
const SmallPiece = 4 << 10

// InPieces sends an event whose Data a reader may not take for long: as one message, which is
// charged for as data and encoded, or, where the budget has no room for that, in small pieces.
// So a reader gets on whatever other readers hold.
func InPieces(held *budget.Charge, ev process.Event, send func(process.Event) error) error {
	if len(ev.Data) <= SmallPiece {
		return send(ev)
	}
	if held.Add(2*int64(len(ev.Data))) == nil {
		defer held.Release()
		return send(ev)
	}
	for rest := ev.Data; len(rest) > 0; {
		n := min(len(rest), SmallPiece)
		ev.Data, rest = rest[:n], rest[n:]
		if err := send(ev); err != nil {
			return err
		}
		ev.Offset += int64(n)
	}
	return nil
}
