// Package budget bounds the memory that a server holds for its clients: what it has read and
// not dealt with, and what waits for one who does not read.
//
// There is one [Budget] for a whole server. What is held is charged for by whoever holds it,
// and counts for the whole and for the holders that the charge names: a sandbox, a key. A
// request of nobody in particular, which is the owner's, counts for the whole alone.
//
// # Shares
//
// A holder may take more only while it has, after that, at most a third of what is free. So
// one alone has at most a quarter, and n who take alike have 1/(n+3) each; of those who come one
// after another and give nothing back, each has at most a quarter of what the ones before have
// left. Nobody uses the whole up, nobody has to be told how many there are, and one who comes
// alone is not kept to the share of a thousand.
//
// What does not fit is refused at once, by a [BusyError], which protocols word as "too many
// requests" or "resource exhausted". Output is not refused: it continues in pieces that are too
// small to be charged for.
package budget

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// shareOfFree is which part of what is free a holder may have at most.
const shareOfFree = 3

// Budget is a number of bytes, or of places. A nil Budget has no limit.
type Budget struct {
	max int64

	mu   sync.Mutex
	used int64            // guarded by mu
	by   map[Holder]int64 // of each holder that has something; guarded by mu
}

// New returns a budget of max bytes.
func New(max int64) *Budget { return &Budget{max: max, by: map[Holder]int64{}} }

// Holder is whom something is held for. The zero value is nobody in particular.
type Holder struct{ kind, id string }

// Sandbox is all that is held for clients of a sandbox, and for its programs.
func Sandbox[T ~string](id T) Holder { return Holder{"sandbox", string(id)} }

// Key is all that is held for one who shows a virtual key, by the ID of the key.
func Key(id string) Holder { return Holder{"key", id} }

// Readers are all logins that only read.
var Readers = Holder{"logins", "that only read"}

func (h Holder) String() string { return h.kind + " " + h.id }

// Used is how much is held, in bytes.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// UsedBy is how much is held for a holder, in bytes.
func (b *Budget) UsedBy(h Holder) int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.by[h]
}

// BusyError refuses what there is no room for.
type BusyError struct {
	Max    int64  // of the budget
	Holder Holder // whose share is used up; the zero value: the whole is
	Share  int64  // that it may have now
}

func (e *BusyError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("large requests in flight use up the %d MiB that this server has for them; "+
			"try again, with less at a time", e.Max>>20)
	}
	return fmt.Sprintf("large requests in flight, and streams that are not read, of %s use up the %d KiB that it may have now "+
		"of the %d MiB that this server has for them; read or end some of them, and try again, with less at a time",
		e.Holder, e.Share>>10, e.Max>>20)
}

// maxHolders is how many holders a charge can have: a key, and the sandbox that it is for.
const maxHolders = 2

// Charge is what one request, stream or queue holds. The zero value, and nil, are charged to
// no budget. All methods may be called concurrently.
type Charge struct {
	budget  *Budget
	held    atomic.Int64       // changed while Budget.mu is held
	holders [maxHolders]Holder // guarded by Budget.mu
}

// On makes a charge that holds nothing one of a budget. Call Release at the end.
func (c *Charge) On(b *Budget, holders ...Holder) {
	c.budget = b
	copy(c.holders[:], holders)
}

// Charge returns a charge on the budget.
func (b *Budget) Charge(holders ...Holder) *Charge {
	c := new(Charge)
	c.On(b, holders...)
	return c
}

// Like makes a charge that holds nothing one of the budget and the holders of another: for
// what outlives the request that it is made by, or is given up at other moments.
func (c *Charge) Like(other *Charge) {
	if other == nil || other.budget == nil {
		return
	}
	other.budget.mu.Lock()
	defer other.budget.mu.Unlock()
	c.budget, c.holders = other.budget, other.holders
}

// Holders are those that the charge names.
func (c *Charge) Holders() (all []Holder) {
	if c == nil || c.budget == nil {
		return nil
	}
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	for _, h := range c.holders {
		if h != (Holder{}) {
			all = append(all, h)
		}
	}
	return all
}

// For adds a holder, once it is known who calls. What is held already counts for it, too.
func (c *Charge) For(h Holder) {
	if c == nil || c.budget == nil {
		return
	}
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, known := range c.holders {
		if known == h {
			return
		}
		if known == (Holder{}) {
			c.holders[i] = h
			b.count(h, c.held.Load())
			return
		}
	}
}

// Add takes n more bytes, or none and returns a [*BusyError].
func (c *Charge) Add(n int64) error {
	if c == nil || c.budget == nil || n <= 0 {
		return nil
	}
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.max - b.used - n
	if free < 0 {
		return &BusyError{Max: b.max}
	}
	for _, h := range c.holders {
		if has := b.by[h]; h != (Holder{}) && has+n > free/shareOfFree {
			return &BusyError{Max: b.max, Holder: h, Share: (b.max - b.used + has) / (shareOfFree + 1)}
		}
	}
	b.move(c, n)
	return nil
}

// move counts n bytes more. mu is held.
func (b *Budget) move(c *Charge, n int64) {
	b.used += n
	c.held.Add(n)
	for _, h := range c.holders {
		b.count(h, n)
	}
}

// count counts for a holder. mu is held.
func (b *Budget) count(h Holder, n int64) {
	if h == (Holder{}) || n == 0 {
		return
	}
	if b.by[h] += n; b.by[h] == 0 {
		delete(b.by, h)
	}
}

// Held is how much the charge holds, in bytes.
func (c *Charge) Held() int64 {
	if c == nil {
		return 0
	}
	return c.held.Load()
}

// Keep gives back what the charge holds beyond n bytes.
func (c *Charge) Keep(n int64) {
	if c.Held() <= n { // as nearly always: small requests hold nothing
		return
	}
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := c.held.Load(); held > n {
		b.move(c, n-held)
	}
}

// Give gives n bytes back, or what there is.
func (c *Charge) Give(n int64) {
	if n <= 0 || c.Held() == 0 {
		return
	}
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.move(c, -min(n, c.held.Load()))
}

// Release gives everything back. The charge may be used again.
func (c *Charge) Release() { c.Keep(0) }

type chargeKey struct{}

// With makes the charge of a request known to its handler.
func With(ctx context.Context, c *Charge) context.Context {
	return context.WithValue(ctx, chargeKey{}, c)
}

// Of is the charge of a request; nil: it has none. What its handler holds beside the body may
// be added, and is given back when the request ends.
func Of(ctx context.Context) *Charge {
	c, _ := ctx.Value(chargeKey{}).(*Charge)
	return c
}
