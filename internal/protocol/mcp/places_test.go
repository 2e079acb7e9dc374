package mcp

import (
	"fmt"
	"testing"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// The calls of one sandbox leave places to those of others, and to the owner's.
func TestCallsOfOneSandboxLeavePlaces(t *testing.T) {
	c := &calls{stopping: make(chan struct{}), places: budget.New(16)}
	fill := func(at driver.ID) (n int, ends []func()) {
		for {
			end, ok := c.add(&call{place: &place{sandbox: at}})
			if !ok {
				return n, ends
			}
			n, ends = n+1, append(ends, end)
		}
	}
	var all []func()
	for i, want := range []int{4, 3, 2} { // a quarter of what is left
		n, ends := fill(driver.ID(fmt.Sprint("s", i)))
		all = append(all, ends...)
		if n != want {
			t.Errorf("sandbox %d has %d calls, not %d", i, n, want)
		}
	}
	n, ends := fill("")
	if all = append(all, ends...); n != 7 {
		t.Errorf("the owner has %d calls", n)
	}
	for _, end := range all {
		end()
	}
	if c.count() != "0" {
		t.Errorf("at the end there are %s", c.count())
	}
}
