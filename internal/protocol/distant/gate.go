package distant

import (
	"context"
	"sync"
)

const (
	// maxCalls and maxCallBytes bound the packets of one client that are being
	// answered. At the limit nothing more is read from it.
	maxCalls     = 256
	maxCallBytes = 64 << 20
)

// gate bounds work by number and size. One goroutine enters.
type gate struct {
	room chan struct{} // capacity 1: room became free

	mu    sync.Mutex
	calls int // guarded by mu
	bytes int // guarded by mu
}

func newGate() *gate { return &gate{room: make(chan struct{}, 1)} }

// enter waits for room. A packet that is larger than all the room enters alone.
func (g *gate) enter(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		if g.calls == 0 || g.calls < maxCalls && g.bytes+n <= maxCallBytes {
			g.calls++
			g.bytes += n
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-g.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *gate) leave(n int) {
	g.mu.Lock()
	g.calls--
	g.bytes -= n
	g.mu.Unlock()
	select {
	case g.room <- struct{}{}:
	default:
	}
}
