package tend

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/process"
)

// stream derives the context of one stream: it ends with ctx, with cancel and
// with the client.
func (c *Client) stream(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.closed, func() { cancel(errClosed) })
	return ctx, func(err error) {
		stop()
		cancel(err)
	}
}

// causeOf returns errSilent if that is why this client ended the stream, else the
// stream's own error.
func causeOf(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// receive opens a stream and calls take with each message, until take fails (by io.EOF: it has all
// that it wants) or the stream ends, which is an error only if ended is one. It also ends the
// stream if nothing arrives for too long: HTTP/1.1 has no other way to notice a dead peer. The
// time that take needs does not count.
func receive[Q, A any](ctx context.Context, c *Client,
	open func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[A], error), req *Q,
	ended error, take func(*A) error) error {
	ctx, cancel := c.stream(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.silence, func() { cancel(errSilent) })
	defer silence.Stop()
	stream, err := open(ctx, connect.NewRequest(req))
	if err != nil {
		return causeOf(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		silence.Stop()
		switch err := take(stream.Msg()); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		silence.Reset(c.silence)
	}
	return cmp.Or(causeOf(ctx, stream.Err()), ended)
}

// subscription is a stream that a goroutine of the client receives, over one
// connection after another, and a caller takes from.
type subscription struct {
	*feed
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine has ended
}

// subscribe runs receive until the stream's end, which is its error, nil at the
// last event. It returns when receive has called opened, or has ended. ctx ends the
// opening only; the stream lives until it is closed.
func (c *Client) subscribe(ctx context.Context, s *subscription, receive func(life context.Context, opened func()) error) error {
	if c.closed.Err() != nil {
		return errClosed
	}
	life, cancel := c.stream(context.WithoutCancel(ctx))
	*s = subscription{feed: newFeed(), cancel: cancel, done: make(chan struct{})}
	opened := make(chan error, 1)
	offer := func(err error) {
		select {
		case opened <- err:
		default:
		}
	}
	c.wg.Go(func() {
		defer close(s.done)
		defer cancel(nil)
		err := receive(life, func() { offer(nil) })
		if life.Err() != nil {
			err = errClosed
		}
		s.end(cmp.Or(err, io.EOF))
		offer(err)
	})
	var err error
	select {
	case err = <-opened:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.Close()
	}
	return err
}

// Close implements process.Reader and process.Watcher.
func (s *subscription) Close() error {
	s.shut()
	s.cancel(errClosed)
	<-s.done
	return nil
}

// maxQueued bounds what a reader holds for its caller, in bytes: enough for the network
// to go on while the caller works, and little enough for a thousand readers. One event
// more may be held.
const maxQueued = 256 << 10

// eventCost is what an event counts for in a queue besides its data.
const eventCost = 256

// feed hands events from the goroutine that receives them to a caller that
// never blocks. One goroutine puts, one caller takes.
type feed struct {
	ready chan struct{} // capacity 1: something may have come
	room  chan struct{} // capacity 1: something was removed

	mu     sync.Mutex
	queue  []process.Event // guarded by mu
	bytes  int             // guarded by mu
	err    error           // guarded by mu; comes after the queue
	closed bool            // guarded by mu
}

func newFeed() *feed {
	return &feed{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Ready implements process.Reader.
func (f *feed) Ready() <-chan struct{} { return f.ready }

// Next implements process.Reader.
func (f *feed) Next() (process.Event, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return process.Event{}, false, io.ErrClosedPipe
	case len(f.queue) > 0:
		ev := f.queue[0]
		f.queue[0] = process.Event{}
		if f.queue = f.queue[1:]; len(f.queue) == 0 {
			f.queue = nil
		}
		f.bytes -= len(ev.Data) + eventCost
		notify(f.room)
		return ev, true, nil
	}
	return process.Event{}, false, f.err
}

// put adds an event when there is room; false: the feed ended meanwhile.
func (f *feed) put(ctx context.Context, ev process.Event) bool {
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return false
		}
		if f.bytes < maxQueued {
			f.queue = append(f.queue, ev)
			f.bytes += len(ev.Data) + eventCost
			f.mu.Unlock()
			notify(f.ready)
			return true
		}
		f.mu.Unlock()
		select {
		case <-f.room:
		case <-ctx.Done():
			return false
		}
	}
}

// end sets the error that comes after the last event.
func (f *feed) end(err error) {
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	notify(f.ready)
}

// shut makes the feed deliver nothing more.
func (f *feed) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.queue, f.bytes = true, nil, 0
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
