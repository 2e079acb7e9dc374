package face

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Budget limits the memory that requests in flight hold: bodies that are being read,
// and the values decoded from them. A nil Budget has no limit.
type Budget struct {
	max  int64
	used atomic.Int64
}

// NewBudget returns a budget of max bytes.
func NewBudget(max int64) *Budget { return &Budget{max: max} }

// Used is how much of the budget is taken, in bytes.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// BusyError refuses what the budget has no room for.
type BusyError struct{ Max int64 }

func (e *BusyError) Error() string {
	return fmt.Sprintf("large requests in flight use up the %d MiB that this server has for them; try again, with less at a time", e.Max>>20)
}

// Charge begins an account on the budget. Release it at the end.
func (b *Budget) Charge() *Charge { return &Charge{budget: b} }

// Charge is what one request holds of a [Budget]. One goroutine adds; any may
// release.
type Charge struct {
	budget *Budget
	held   atomic.Int64
}

// Add takes n more bytes, or returns a [*BusyError].
func (c *Charge) Add(n int64) error {
	if c.budget == nil {
		return nil
	}
	if c.budget.used.Add(n) > c.budget.max {
		c.budget.used.Add(-n)
		return &BusyError{c.budget.max}
	}
	c.held.Add(n)
	return nil
}

// Held is how much the charge holds, in bytes.
func (c *Charge) Held() int64 { return c.held.Load() }

// Release gives everything back. The charge may be used again.
func (c *Charge) Release() {
	if n := c.held.Swap(0); n != 0 {
		c.budget.used.Add(-n)
	}
}

// Keep gives back what the charge holds beyond n bytes.
func (c *Charge) Keep(n int64) {
	for {
		held := c.held.Load()
		if held <= n {
			return
		}
		if c.held.CompareAndSwap(held, n) {
			c.budget.used.Add(n - held)
			return
		}
	}
}

type chargeKey struct{}

// WithCharge makes the charge of a request known to its handler.
func WithCharge(ctx context.Context, c *Charge) context.Context {
	return context.WithValue(ctx, chargeKey{}, c)
}

// Forget says that the handler no longer needs the body: a stream that lasts for hours
// must not be charged for the request that started it.
func Forget(ctx context.Context) {
	Keep(ctx, 0)
}

// Keep says that the handler has decoded what it has read, and holds at most n bytes of it
// from now on.
func Keep(ctx context.Context, n int64) {
	if c, ok := ctx.Value(chargeKey{}).(*Charge); ok {
		c.Keep(n)
	}
}
