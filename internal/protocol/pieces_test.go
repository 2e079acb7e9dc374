package protocol_test

import (
	"bytes"
	"testing"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Output that the budget has no room for is sent all the same, in pieces that hold little.
func TestOutputGoesOnInPieces(t *testing.T) {
	data := make([]byte, 3*protocol.SmallPiece+100)
	for i := range data {
		data[i] = byte(i >> 8)
	}
	for _, tt := range []struct {
		whole  int64
		pieces int
	}{{1 << 20, 1}, {1 << 10, 4}} {
		whole := budget.New(tt.whole)
		held := whole.Charge(budget.Sandbox("a"))
		var got []byte
		pieces := 0
		send := func(ev process.Event) error {
			if ev.Offset != 1000+int64(len(got)) || ev.Stream != process.Stderr || whole.Used() > tt.whole/4 {
				t.Errorf("piece %d is at %d, behind %d bytes; %d are held", pieces, ev.Offset, len(got), whole.Used())
			}
			got = append(got, ev.Data...)
			pieces++
			return nil
		}
		ev := process.Event{Kind: process.EventOutput, Stream: process.Stderr, Offset: 1000, Data: data}
		proctest.Must(t, protocol.InPieces(held, ev, send))
		if !bytes.Equal(got, data) || pieces != tt.pieces || whole.Used() != 0 {
			t.Errorf("%d bytes came in %d pieces, and %d are held", len(got), pieces, whole.Used())
		}
	}
}
