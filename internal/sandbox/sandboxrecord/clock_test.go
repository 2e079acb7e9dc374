package sandboxrecord

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAClockWakesAtTheEarliestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := NewClock(), time.Now()
		at := func(want time.Duration) {
			t.Helper()
			if !d.Wait(t.Context(), time.Minute) {
				t.Fatal("it ended")
			}
			if got := time.Since(start); got != want {
				t.Errorf("it woke after %v, want %v", got, want)
			}
		}
		d.Set(start.Add(10 * time.Second))
		d.Set(start.Add(5 * time.Second))
		d.Set(start.Add(7 * time.Second))
		d.Set(time.Time{})
		at(5 * time.Second)
		at(65 * time.Second) // what was later is forgotten
		go func() {
			time.Sleep(time.Second)
			d.Set(time.Now().Add(time.Second))
		}()
		at(67 * time.Second) // moved forward while it waits
		d.Set(start)
		at(67 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if d.Wait(ctx, time.Minute) {
			t.Error("it goes on")
		}
	})
}
