package budget

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// fill adds pieces until the charge is refused, and returns what it holds.
func fill(t *testing.T, c *Charge, piece int64) int64 {
	t.Helper()
	for {
		if err := c.Add(piece); err != nil {
			if _, ok := errors.AsType[*BusyError](err); !ok {
				t.Fatal(err)
			}
			return c.Held()
		}
	}
}

// Whatever some take, the next one has a share: a quarter of what is left, or as much as all
// others if they take alike.
func TestAHolderLeavesRoomForTheNext(t *testing.T) {
	const max, piece = 512 << 20, 1 << 10
	holder := func(i int) Holder { return Sandbox(fmt.Sprint(i)) }
	for _, n := range []int{1, 2, 8, 20} {
		b := New(max)
		all := make([]Charge, n+1)
		for i := range all {
			left := max - b.Used()
			all[i].On(b, holder(i))
			if got := fill(t, &all[i], piece); got > left/4 || got < left/4-piece || got != b.UsedBy(holder(i)) {
				t.Errorf("%d of %d holds %d of the %d that are left", i, n, got, left)
			}
		}
		for i := range all {
			all[i].Release()
		}
		for more := true; more; {
			more = false
			for i := range all {
				more = all[i].Add(piece) == nil || more
			}
		}
		for i := range all {
			if fair := int64(max / (n + 4)); all[i].Held() > fair+piece || all[i].Held() < fair-piece {
				t.Errorf("%d of %d who take alike holds %d, not %d", i, n+1, all[i].Held(), fair)
			}
		}
		for i := range all {
			all[i].Release()
		}
		if b.Used() != 0 || len(b.by) != 0 {
			t.Errorf("at the end %d are used, by %v", b.Used(), b.by)
		}
	}
}

func TestTheOwnerMayUseTheWhole(t *testing.T) {
	b := New(1 << 20)
	c := b.Charge()
	if got := fill(t, c, 1<<10); got != 1<<20 {
		t.Errorf("the owner gets %d", got)
	}
	err := b.Charge(Sandbox("a")).Add(1)
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Holder != (Holder{}) || !strings.Contains(err.Error(), "the 1 MiB") {
		t.Errorf("nothing is left: %v", err)
	}
	c.Release()
	err = b.Charge(Sandbox("a")).Add(1 << 19)
	busy, ok := errors.AsType[*BusyError](err)
	if !ok || busy.Holder != Sandbox("a") || busy.Share != 1<<18 || !strings.Contains(err.Error(), "of sandbox a use up the 256 KiB") {
		t.Errorf("half of all for one: %v", err)
	}
}

// What is held already counts for whoever turns out to call.
func TestWhatIsHeldCountsForItsHolders(t *testing.T) {
	b := New(1 << 20)
	c := b.Charge()
	if err := c.Add(1000); err != nil {
		t.Fatal(err)
	}
	c.For(Key("k"))
	c.For(Key("k"))
	c.For(Sandbox("s"))
	var beside Charge
	beside.Like(c)
	if err := beside.Add(24); err != nil {
		t.Fatal(err)
	}
	if got := c.Holders(); len(got) != 2 || b.UsedBy(Key("k")) != 1024 || b.UsedBy(Sandbox("s")) != 1024 || b.Used() != 1024 {
		t.Errorf("%v: %d, %d, %d", got, b.UsedBy(Key("k")), b.UsedBy(Sandbox("s")), b.Used())
	}
	c.Keep(2000)
	c.Keep(100)
	beside.Give(4)
	beside.Give(1000) // there are 20
	if b.UsedBy(Key("k")) != 100 || b.Used() != 100 || beside.Held() != 0 {
		t.Errorf("%d, %d", b.UsedBy(Key("k")), b.Used())
	}
	c.Release()
	c.Release()
	if b.Used() != 0 || len(b.by) != 0 {
		t.Errorf("%d are used, by %v", b.Used(), b.by)
	}
}

// Without a budget nothing is counted, and nothing refused.
func TestNoBudgetIsNoBound(t *testing.T) {
	var none *Budget
	for _, c := range []*Charge{nil, new(Charge), none.Charge(Sandbox("a")), Of(t.Context())} {
		var like Charge
		like.Like(c)
		c.For(Key("k"))
		if err := errors.Join(c.Add(1<<40), like.Add(1<<40)); err != nil {
			t.Error(err)
		}
		c.Give(1)
		c.Keep(1)
		c.Release()
		if c.Held() != 0 || c.Holders() != nil {
			t.Errorf("%d held", c.Held())
		}
	}
	if none.Used() != 0 || none.UsedBy(Key("k")) != 0 {
		t.Error("used")
	}
}

// Whatever many do at once, panics included, all comes back.
func TestAllComesBack(t *testing.T) {
	b := New(1 << 20)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 500 {
				func() {
					c := b.Charge(Sandbox(fmt.Sprint(i%4)), Key(fmt.Sprint(i%3)))
					defer func() { _ = recover() }()
					defer c.Release()
					for range 4 {
						_ = c.Add(rand.Int64N(64 << 10))
						c.Keep(rand.Int64N(64 << 10))
						c.Give(rand.Int64N(1 << 10))
					}
					panic("a bug")
				}()
			}
		})
	}
	all.Wait()
	if b.Used() != 0 || len(b.by) != 0 {
		t.Errorf("%d are used, by %v", b.Used(), b.by)
	}
}

// Each request with a body pays for this.
func TestCountingAllocatesNothing(t *testing.T) {
	b := New(1 << 20)
	id := "a"
	if err := b.Charge(Sandbox(id)).Add(1); err != nil { // the map is made
		t.Fatal(err)
	}
	var c Charge
	if n := testing.AllocsPerRun(1000, func() {
		c = Charge{}
		c.On(b)
		c.For(Sandbox(id))
		_ = c.Add(100)
		c.Keep(10)
		c.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCharge(b *testing.B) {
	whole := New(1 << 20)
	var c Charge
	c.On(whole, Sandbox("a"))
	for b.Loop() {
		_ = c.Add(100)
		c.Release()
	}
}
