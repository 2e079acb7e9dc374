package tend

import (
	"context"
	"errors"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

type watcher struct{ subscription }

// Watch implements [process.Manager]. When the connection is lost, the watcher ends
// with [process.ErrLagged], because it may have missed events: list the processes, and
// watch again.
func (c *Client) Watch(ctx context.Context) (process.Watcher, error) {
	w := new(watcher)
	err := c.subscribe(ctx, &w.subscription, func(ctx context.Context, opened func()) error {
		open, lost := false, false
		err := c.repeat(ctx, "watch", func(error) bool { lost = open; return open }, func(*attempts) error {
			return w.once(ctx, c, func() { open = true; opened() })
		})
		if lost {
			return process.ErrLagged
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// once receives one stream to its end, which is an error always.
func (w *watcher) once(ctx context.Context, c *Client, opened func()) error {
	return receive(ctx, c, c.rpc.Events, &tendv1.EventsRequest{}, errAway, func(m *tendv1.EventsResponse) error {
		switch m.GetEvent().GetFact().(type) {
		case *tendv1.Event_Hello_:
			opened()
			return nil
		case *tendv1.Event_GoingAway:
			return errAway
		}
		ev, ok := tendpb.ToEvent(m.GetEvent())
		if !ok {
			return nil
		}
		if err := checkEvent(&ev); err != nil {
			return err
		}
		if !w.offer(ev) {
			return errors.Join(process.ErrLagged, ctx.Err())
		}
		return nil
	})
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
