package tend

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

type watcher struct {
	*feed
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// Watch implements [process.Manager]. When the connection is lost the watcher
// ends with [process.ErrLagged], because facts may have been missed: list, and
// watch again.
func (c *Client) Watch(ctx context.Context) (process.Watcher, error) {
	if c.closed.Err() != nil {
		return nil, errClosed
	}
	life, cancel := c.stream(context.WithoutCancel(ctx))
	w := &watcher{feed: newFeed(), cancel: cancel, done: make(chan struct{})}
	opened := make(chan error, 1)
	c.wg.Go(func() {
		defer close(w.done)
		defer cancel(nil)
		w.run(life, c, opened)
	})
	select {
	case err := <-opened:
		if err != nil {
			w.Close()
			return nil, err
		}
		return w, nil
	case <-ctx.Done():
		w.Close()
		return nil, ctx.Err()
	}
}

// Close implements process.Watcher.
func (w *watcher) Close() error {
	w.shut()
	w.cancel(errClosed)
	<-w.done
	return nil
}

// run opens the stream, with retries until it has been open once.
func (w *watcher) run(ctx context.Context, c *Client, opened chan<- error) {
	attempts := c.retrying()
	for {
		turn := c.road.taken()
		open, err := w.once(ctx, c, opened)
		if !open && err == nil || errors.Is(err, errSilent) {
			c.road.leave(turn)
		}
		switch {
		case ctx.Err() != nil:
			err = errClosed
		case open && (err == nil || transient(err)):
			err = process.ErrLagged
		case !open && (err == nil || transient(err)):
			if wait, ok := attempts.next(err == nil); ok && pause(ctx, wait) == nil {
				continue
			}
			err = c.domainError(ctx, errOr(err, errGone))
		default:
			err = c.domainError(ctx, err)
		}
		w.end(err)
		offer(opened, err)
		return
	}
}

func (w *watcher) once(ctx context.Context, c *Client, opened chan<- error) (open bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := c.watchSilence(cancel)
	defer silence.stop()
	stream, err := c.rpc.Events(ctx, connect.NewRequest(&tendv1.EventsRequest{}))
	if err != nil {
		return false, causeOf(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		silence.heard()
		m := stream.Msg().GetEvent()
		switch m.GetFact().(type) {
		case *tendv1.Event_Hello_:
			open = true
			offer(opened, nil)
			continue
		case *tendv1.Event_GoingAway:
			return open, nil
		}
		ev, ok := tendpb.ToEvent(m)
		if !ok {
			continue
		}
		if err := checkEvent(&ev); err != nil {
			return open, err
		}
		if !w.offer(ev) {
			return open, errors.Join(process.ErrLagged, ctx.Err())
		}
	}
	return open, causeOf(ctx, stream.Err())
}

// maxWatched is how many events a watcher may lag behind.
const maxWatched = 4096

// offer adds an event without waiting; false: the caller lags too far behind.
func (w *watcher) offer(ev process.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.queue) >= maxWatched {
		return false
	}
	w.queue = append(w.queue, ev)
	w.bytes += eventCost
	notify(w.ready)
	return true
}
