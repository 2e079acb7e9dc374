package process

import (
	"context"
	"errors"
	"io"
	"iter"
)

// Events opens a reader of a process and returns its events for a for-range loop.
func Events(ctx context.Context, p Process, opts ReadOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r, err := p.Read(ctx, opts)
		if err != nil {
			yield(Event{}, err)
			return
		}
		Follow(ctx, r)(yield)
	}
}

// Follow turns a reader, or a watcher, into a sequence of events for a for-range loop. It
// ends without an error after the last event, and with ctx.Err() when the
// context ends first. It closes the reader.
func Follow(ctx context.Context, r Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer r.Close()
		for {
			ev, ok, err := r.Next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(Event{}, err)
				return
			case ok:
				if !yield(ev, nil) {
					return
				}
				continue
			}
			select {
			case <-r.Ready():
			case <-ctx.Done():
				yield(Event{}, ctx.Err())
				return
			}
		}
	}
}
