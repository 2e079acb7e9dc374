package idletrim

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestARoleRestsOnceAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rests atomic.Int32
		r := giving(func() { rests.Add(1) })
		defer r.Close()
		for range 10 { // its start and then uses, never far apart
			time.Sleep(Quiet - time.Second)
			r.Used()
		}
		if n := rests.Load(); n != 0 {
			t.Fatalf("it has rested %d times while it was used", n)
		}
		time.Sleep(2*Quiet + time.Second)
		if n := rests.Load(); n != 1 {
			t.Fatalf("after its last use it has rested %d times", n)
		}
		time.Sleep(time.Hour)
		if n := rests.Load(); n != 1 {
			t.Errorf("nobody used it for an hour, and it has rested %d times", n)
		}
		r.Used()
		time.Sleep(2*Quiet + time.Second)
		if n := rests.Load(); n != 2 {
			t.Errorf("after another use it has rested %d times", n)
		}
	})
}

func TestAUseDuringARestIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := make(chan *Trimmer, 1)
		rests := 0
		r := giving(func() {
			if rests++; rests == 1 {
				(<-made).Used()
			}
		})
		made <- r
		time.Sleep(time.Hour)
		r.Close() // waits for a rest under way
		if rests != 2 {
			t.Errorf("it has rested %d times", rests)
		}
	})
}

func TestNoRestBeginsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := giving(func() { t.Error("it rests") })
		r.Close()
		r.Used()
		time.Sleep(time.Hour)
	})
}

func TestARoleWithoutRestIsUsed(t *testing.T) {
	var r *Trimmer
	r.Used()
	r.Close()
}
