package distant

import (
	"context"
	"errors"
	"testing"
)

// A server that ends breaks off the input that waits. What it reads after that may not
// overtake: it would count as behind what was broken off, which would never be written.
func TestNoInputOvertakesWhatWasBrokenOff(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	c := (&Face{}).newClient(ctx, nil)
	written, waits := c.ticket(1), c.ticket(1)
	if err := written.wait(ctx, call{}, 1); err != nil {
		t.Fatal(err)
	}
	end()
	written.leave()
	if err := waits.wait(ctx, call{}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("what waited: %v", err)
	}
	waits.leave() // nobody is in the lane now
	late := c.ticket(1)
	defer late.leave()
	if err := late.wait(ctx, call{}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("what came later: %v", err)
	}
}
