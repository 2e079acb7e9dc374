package langsmith_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/support/proctest"
)

// half begins a message and sends so many bytes of it. end sends the rest.
func (c *wsConn) half(size int) (end func()) {
	c.t.Helper()
	w := proctest.Value(c.Writer(c.t.Context(), websocket.MessageText))(c.t)
	send := func(text string) {
		proctest.Value(io.WriteString(w, text))(c.t)
	}
	send(`{"type":"input","data":"`)
	for range size >> 10 {
		send(strings.Repeat("x", 1<<10))
	}
	return func() {
		c.t.Helper()
		send(`"}`)
		proctest.Must(c.t, w.Close())
	}
}

// What messages hold while they arrive has one budget: what does not fit is refused
// by a word and a close that means try again, and what was dealt with is given back.
func TestMessagesThatAreBeingReadHaveOneBudget(t *testing.T) {
	t.Parallel()
	budget := budget.New(32 << 20) // a quarter for one box
	s := serve(t, func(c *langsmith.Config) { c.Budget = budget })
	holder, _ := s.execute(object{"command": "wc -c"})
	end := holder.half(400 << 10)
	proctest.Eventually(t, "most of the budget is used", func() bool { return budget.Used() > 5<<20 })

	// A small message costs nothing, and a large one is refused.
	other, f := s.execute(object{"command": "cat >/dev/null"})
	if f.Type != "started" {
		t.Fatalf("a small message: %+v", f)
	}
	other.half(400 << 10)
	for refused := false; ; {
		f, code, ok := other.next()
		if !ok {
			if !refused || code != websocket.StatusTryAgainLater {
				t.Errorf("closed with %d, refused %v; want %d after the reason", code, refused, websocket.StatusTryAgainLater)
			}
			break
		}
		refused = refused || f.Type == "error" && strings.Contains(f.Error, "of the 32 MiB")
	}

	end()
	proctest.Eventually(t, "what was dealt with is given back", func() bool { return budget.Used() == 0 })
	if third, f := s.execute(object{"command": "cat", "env": object{"A": strings.Repeat("x", 100<<10)}}); f.Type != "started" {
		t.Errorf("with the budget free again: %+v", f)
	} else {
		third.half(200 << 10)
		proctest.Eventually(t, "it is taken", func() bool { return budget.Used() > 0 })
		third.CloseNow()
	}
	proctest.Eventually(t, "a client that leaves gives back what its half message held", func() bool { return budget.Used() == 0 })
}

// Half a large message holds its memory for as long as such a message may take,
// and no longer.
func TestALargeMessageThatDoesNotEndLosesItsConnection(t *testing.T) {
	t.Parallel()
	budget := budget.New(64 << 20)
	s := serve(t, func(c *langsmith.Config) { c.Budget, c.MessageTime = budget, 200*time.Millisecond })
	c, f := s.execute(object{"command": "cat >/dev/null; sleep 1000", "command_id": "goes-on"})
	if f.Type != "started" {
		t.Fatal(f)
	}
	c.half(200 << 10)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			if ctx.Err() != nil {
				t.Fatal("the connection lives on")
			}
			break
		}
	}
	proctest.Eventually(t, "the budget is free", func() bool { return budget.Used() == 0 })
	if _, f := s.reconnect("goes-on", 0, 0); f.Type != "started" {
		t.Errorf("the command: %+v", f)
	}
}
