package tend

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/view"
)

// View shows what a process has written until now to item: the beginning and
// the end, with what lies between told as left out. It is made by the server,
// so that only what is shown comes over the network. A view that breaks off is
// an error; it is not made anew.
func (c *Client) View(ctx context.Context, by process.Selector, o view.Options, item func(view.Item) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	ctx, end := c.stream(ctx)
	defer end(nil)
	answer, err := c.views.View(ctx, connect.NewRequest(tendpb.ViewRequest(by, &o)))
	if err != nil {
		return c.domainError(ctx, err)
	}
	defer answer.Close()
	for answer.Receive() {
		it := tendpb.ToViewItem(answer.Msg())
		if err := checkRange(it.Stream, it.From, it.To); err != nil {
			return err
		}
		if err := item(it); err != nil {
			return err
		}
	}
	return c.domainError(ctx, answer.Err())
}

// Grep delivers the lines of a process's output that match. freed is told the
// ranges that could not be searched; nil: they are not told. Options that the
// server is too old for are [process.ErrUnsupported].
func (c *Client) Grep(ctx context.Context, by process.Selector, o view.GrepOptions, match func(view.Match) error, freed func(process.Gap) error) error {
	if o.Invert || o.Before > 0 || o.After > 0 {
		if err := c.needsGrepOptions(ctx); err != nil {
			return err
		}
	}
	ctx, end := c.stream(ctx)
	defer end(nil)
	answer, err := c.views.Grep(ctx, connect.NewRequest(tendpb.GrepRequest(by, &o)))
	if err != nil {
		return c.domainError(ctx, err)
	}
	defer answer.Close()
	for answer.Receive() {
		m := answer.Msg()
		if found := m.GetMatch(); found != nil {
			shown := tendpb.ToMatch(found)
			if err = checkRange(shown.Stream, shown.From, shown.To); err == nil {
				err = match(shown)
			}
		} else if g := m.GetFreed(); g != nil && freed != nil {
			gap := process.Gap{Stream: process.Stream(g.GetStream()), From: g.GetFrom(), To: g.GetTo()}
			if err = checkRange(gap.Stream, gap.From, gap.To); err == nil {
				err = freed(gap)
			}
		}
		if err != nil {
			return err
		}
	}
	return c.domainError(ctx, answer.Err())
}

// needsGrepOptions fails on a server of a former version, which takes a search for
// lines that do not match, or with lines around, for a plain one. It may have been
// replaced since it said what it knows, so it is asked again.
func (c *Client) needsGrepOptions(ctx context.Context) error {
	if c.greps.Load() {
		return nil
	}
	if err := c.hello(ctx); err != nil {
		return c.domainError(ctx, err)
	}
	if !c.greps.Load() {
		return fmt.Errorf("%w: the server does not know invert, before and after of a search; it is of a former version: tend upgrade replaces it", process.ErrUnsupported)
	}
	return nil
}
