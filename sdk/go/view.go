package tend

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// View returns the output of a process until now: the beginning, the end, and between
// them an item that says how much is omitted. The server makes the view, so only the
// shown parts cross the network. An error ends the sequence; a view that breaks off is
// not repeated.
func (c *Client) View(ctx context.Context, by process.Selector, o view.Options) iter.Seq2[view.Item, error] {
	open := func(ctx context.Context) (*connect.ServerStreamForClient[tendv1.ViewResponse], error) {
		if err := o.Validate(); err != nil {
			return nil, err
		}
		return c.views.View(ctx, connect.NewRequest(tendpb.ViewRequest(by, &o)))
	}
	return received(ctx, c, open, func(m *tendv1.ViewResponse) (view.Item, error) {
		it := tendpb.ToViewItem(m)
		return it, checkRange(it.Stream, it.From, it.To)
	})
}

// Grep returns the lines of a process's output that match. A [*process.GapError] names
// a range that could not be searched, and the search continues after it; any other
// error ends the sequence. If the server is too old for an option, the error is
// [process.ErrUnsupported].
func (c *Client) Grep(ctx context.Context, by process.Selector, o view.GrepOptions) iter.Seq2[view.Match, error] {
	open := func(ctx context.Context) (*connect.ServerStreamForClient[tendv1.GrepResponse], error) {
		if o.Invert || o.Before > 0 || o.After > 0 {
			err := c.needs(ctx, (*tendv1.HelloResponse).GetGrepOptions, "does not know invert, before and after of a search; it is")
			if err != nil {
				return nil, err
			}
		}
		return c.views.Grep(ctx, connect.NewRequest(tendpb.GrepRequest(by, &o)))
	}
	return received(ctx, c, open, func(m *tendv1.GrepResponse) (view.Match, error) {
		if g := m.GetFreed(); g != nil {
			gap := process.Gap{Stream: process.Stream(g.GetStream()), From: g.GetFrom(), To: g.GetTo()}
			return view.Match{}, cmp.Or(checkRange(gap.Stream, gap.From, gap.To), error(&process.GapError{Gap: gap}))
		}
		if m.GetMatch() == nil {
			return view.Match{}, errUnknown
		}
		found := tendpb.ToMatch(m.GetMatch())
		return found, checkRange(found.Stream, found.From, found.To)
	})
}

// errUnknown is a message of a later version, which is passed over.
var errUnknown = errors.New("unknown message")

// received yields what read makes of each message of a stream. An error other
// than a gap is the last.
func received[M, T any](ctx context.Context, c *Client, open func(context.Context) (*connect.ServerStreamForClient[M], error),
	read func(*M) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, end := c.stream(ctx)
		defer end(nil)
		var none T
		stream, err := open(ctx)
		if err != nil {
			yield(none, c.domainError(ctx, err))
			return
		}
		defer stream.Close()
		for stream.Receive() {
			v, err := read(stream.Msg())
			if errors.Is(err, errUnknown) {
				continue
			}
			_, gap := errors.AsType[*process.GapError](err)
			if err != nil {
				v = none
			}
			if !yield(v, err) || err != nil && !gap {
				return
			}
		}
		if err := c.domainError(ctx, stream.Err()); err != nil {
			yield(none, err)
		}
	}
}
