package tend

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// reader is process.Reader over the network. A goroutine receives; when the
// stream is lost it opens another from the offsets reached, so that the caller
// sees each byte and each fact once, whatever happens to connections.
type reader struct {
	*feed
	proc   *remote
	opts   process.ReadOptions
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine has ended

	// Owned by the goroutine: what was delivered.
	from                   [4]int64
	started, exited, alone bool
	eof                    [4]bool
}

// Read opens a stream. ctx ends the opening only; the reader lives until it
// is closed or at its end.
func (p *remote) Read(ctx context.Context, opts process.ReadOptions) (process.Reader, error) {
	if opts.MaxChunk < 0 {
		return nil, &process.InvalidError{Field: "max_chunk", Reason: "is negative; 1 to 1 MiB are allowed, 0 for the default"}
	}
	if p.client.closed.Err() != nil {
		return nil, errClosed
	}
	life, cancel := p.client.stream(context.WithoutCancel(ctx))
	r := &reader{feed: newFeed(), proc: p, opts: opts, cancel: cancel, done: make(chan struct{}), from: opts.From}
	opened := make(chan error, 1)
	p.client.wg.Go(func() {
		defer close(r.done)
		defer cancel(nil)
		r.run(life, opened)
	})
	select {
	case err := <-opened:
		if err != nil {
			r.Close()
			return nil, err
		}
		return r, nil
	case <-ctx.Done():
		r.Close()
		return nil, ctx.Err()
	}
}

// Close implements process.Reader.
func (r *reader) Close() error {
	r.shut()
	r.cancel(errClosed)
	<-r.done
	return nil
}

func (r *reader) run(ctx context.Context, opened chan<- error) {
	c, attempts := r.proc.client, r.proc.client.retrying()
	for {
		turn := c.road.taken()
		away, err := r.once(ctx, attempts, opened)
		if away || errors.Is(err, errSilent) {
			c.road.leave(turn)
		}
		switch {
		case ctx.Err() != nil:
			err = errClosed
		case err == nil && !away, r.complete():
			err = io.EOF
		case err != nil && !transient(err):
			err = c.domainError(ctx, err)
		case !away && r.proc.killed.Load():
			// The caller killed it: the loss is told, not repaired.
			err = c.domainError(ctx, err)
		default:
			wait, ok := attempts.next(away)
			if ok {
				c.log.Debug("read again", "id", r.proc.id, "in", wait, "going_away", away, "err", err)
				if pause(ctx, wait) == nil {
					continue
				}
				err = errClosed
			} else {
				err = c.domainError(ctx, errOr(err, errGone))
			}
		}
		r.end(err)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		offer(opened, err)
		return
	}
}

func offer(ch chan<- error, err error) {
	select {
	case ch <- err:
	default:
	}
}

// once reads one stream to its end.
func (r *reader) once(ctx context.Context, attempts *retrying, opened chan<- error) (away bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := r.proc.client.watchSilence(cancel)
	defer silence.stop()

	opts := r.opts
	opts.From = r.from
	req := tendpb.ReadOptions(opts)
	req.Process = r.proc.selector()
	stream, err := r.proc.client.rpc.Read(ctx, connect.NewRequest(req))
	if err != nil {
		return false, causeOf(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		m := stream.Msg().GetEvent()
		switch fact := m.GetFact().(type) {
		case *tendv1.Event_Hello_:
			// Where "now" was, is settled: a second try must not skip what
			// came in between.
			for _, at := range fact.Hello.GetFrom() {
				s, offset := at.GetStream(), at.GetOffset()
				if s <= 0 || int(s) >= len(r.from) || offset < 0 || offset > maxOffset || r.from[s] >= 0 && offset != r.from[s] {
					return false, strange("stream %d from %d on when it was asked for %v", s, offset, r.from)
				}
				r.from[s] = offset
			}
			silence.heard()
			offer(opened, nil)
			continue
		case *tendv1.Event_GoingAway:
			return true, nil
		case *tendv1.Event_Heartbeat:
			silence.heard()
			attempts.progress()
			continue
		}
		ev, ok := tendpb.ToEvent(m)
		if ok {
			if err := r.check(&ev); err != nil {
				return false, err
			}
		}
		if ok && r.fresh(&ev) {
			attempts.progress()
			// While the caller is slow the server cannot be heard.
			silence.stop()
			if !r.put(ctx, ev) {
				return false, ctx.Err()
			}
		}
		silence.heard()
	}
	return false, causeOf(ctx, stream.Err())
}

// check refuses what does not follow what was delivered: this stream is asked
// for from there on.
func (r *reader) check(ev *process.Event) error {
	if err := checkEvent(ev); err != nil {
		return err
	}
	at := r.from[ev.Stream]
	switch {
	case ev.ID != "" && ev.ID != r.proc.id:
		return strange("an event of the process %s on a stream of %s", ev.ID, r.proc.id)
	case ev.Kind != process.EventOutput && ev.Kind != process.EventGap || at < 0:
	case r.eof[ev.Stream]:
		return strange("output of %s after its end", ev.Stream)
	case ev.Offset != at:
		return strange("output of %s at %d when %d was next", ev.Stream, ev.Offset, at)
	}
	return nil
}

// fresh notes what an event delivers, cuts off bytes that were delivered
// before, and reports whether something is left.
func (r *reader) fresh(ev *process.Event) bool {
	switch ev.Kind {
	case process.EventStarted:
		return once(&r.started)
	case process.EventExited:
		return once(&r.exited)
	case process.EventTreeGone:
		return once(&r.alone)
	case process.EventEOF:
		return once(&r.eof[ev.Stream])
	case process.EventGap:
		if ev.Gap.To <= r.from[ev.Stream] {
			return false
		}
		r.from[ev.Stream] = ev.Gap.To
	case process.EventOutput:
		at := &r.from[ev.Stream]
		if again := *at - ev.Offset; *at > 0 && again > 0 {
			if again >= int64(len(ev.Data)) {
				return false
			}
			ev.Data, ev.Offset = ev.Data[again:], *at
		}
		*at = ev.Offset + int64(len(ev.Data))
	}
	return true
}

// complete reports whether nothing can follow, though the end of the stream was
// lost: there may be no server, and no process, to ask for it.
func (r *reader) complete() bool {
	if len(r.opts.Streams) == 0 {
		return r.exited && (r.eof[process.PTY] || r.eof[process.Stdout] && r.eof[process.Stderr])
	}
	all := r.exited
	for _, s := range r.opts.Streams {
		all = all && int(s) < len(r.eof) && r.eof[s]
	}
	return all
}

func once(seen *bool) bool {
	first := !*seen
	*seen = true
	return first
}
