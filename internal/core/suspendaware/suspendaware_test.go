package suspendaware

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAGraceOutlastsAMachineThatStandsStill(t *testing.T) {
	g := New(time.Second)
	at := g.last
	if at = at.Add(time.Hour); g.overAt(at) {
		t.Error("an hour in which nobody looked ended it")
	}
	for n := range 900 / 5 {
		if at = at.Add(5 * time.Millisecond); g.overAt(at) != (n == 900/5-1) {
			t.Fatalf("over after %d looks: %v", n+1, !g.overAt(at))
		}
	}
}

func TestAContextEndsAfterItsTimeOrWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := Context(t.Context(), 2*time.Second)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took != 2*time.Second || context.Cause(ctx) != context.DeadlineExceeded {
			t.Errorf("it ended after %v with %v; want 2s, with %v", took, context.Cause(ctx), context.DeadlineExceeded)
		}

		parent, end := context.WithCancel(t.Context())
		ctx, cancel = Context(parent, time.Hour)
		defer cancel()
		end()
		if <-ctx.Done(); context.Cause(ctx) != context.Canceled {
			t.Errorf("it ended with %v; want %v", context.Cause(ctx), context.Canceled)
		}
	})
}
