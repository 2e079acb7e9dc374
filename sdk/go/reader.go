package tend

import (
	"context"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// reader is process.Reader over the network. When its stream is lost it opens
// another from the offsets reached, so that the caller sees each byte and each
// fact once, whatever happens to connections.
type reader struct {
	subscription
	proc *remote
	opts process.ReadOptions

	// Owned by the goroutine: what was delivered.
	from                   [4]int64
	started, exited, alone bool
	eof                    [4]bool
	sizes                  sizesTaken
}

// sizesTaken tells the changes of a terminal's size that were delivered from those that are new: another
// stream begins with those at the offset that was reached.
type sizesTaken struct {
	any   bool
	at    int64 // the offset of the newest
	n     int   // how many were delivered there
	again int   // how many of these this stream has still to repeat
}

func (t *sizesTaken) fresh(ev *process.Event) bool {
	switch {
	case ev.Time.IsZero(): // the one that holds where the stream begins
		if t.any {
			return false
		}
	case ev.Offset < t.at:
		return false
	case ev.Offset > t.at:
		t.at, t.n, t.again = ev.Offset, 1, 0
	case t.again > 0:
		t.again--
		return false
	default:
		t.n++
	}
	t.any = true
	return true
}

// Read implements process.Process.
func (p *remote) Read(ctx context.Context, opts process.ReadOptions) (process.Reader, error) {
	if opts.MaxChunk < 0 {
		return nil, &process.InvalidError{Field: "max_chunk", Reason: "is negative; 1 to 1 MiB are allowed, 0 for the default"}
	}
	r := &reader{proc: p, opts: opts, from: opts.From}
	if err := p.client.subscribe(ctx, &r.subscription, r.receive); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *reader) receive(ctx context.Context, opened func()) error {
	return r.proc.client.repeat(ctx, "read", r.proc.afterKill, func(a *attempts) error {
		err := r.once(ctx, a, opened)
		if r.complete() {
			return nil // whatever became of the connection
		}
		return err
	})
}

// once reads one stream to its end.
func (r *reader) once(life context.Context, a *attempts, opened func()) error {
	opts := r.opts
	opts.From = r.from
	r.sizes.again = r.sizes.n
	req := tendpb.ReadOptions(opts)
	req.Process = r.proc.selector()
	return receive(life, r.proc.client, r.proc.client.rpc.Read, req, nil, func(resp *tendv1.ReadResponse) error {
		m := resp.GetEvent()
		switch fact := m.GetFact().(type) {
		case *tendv1.Event_Hello_:
			// Where "now" was, is settled: a second try must not skip what
			// came in between.
			for _, at := range fact.Hello.GetFrom() {
				s, offset := at.GetStream(), at.GetOffset()
				if s <= 0 || int(s) >= len(r.from) || offset < 0 || offset > maxOffset || r.from[s] >= 0 && offset != r.from[s] {
					return strange("stream %d from %d on when it was asked for %v", s, offset, r.from)
				}
				r.from[s] = offset
			}
			opened()
			return nil
		case *tendv1.Event_GoingAway:
			return errAway
		case *tendv1.Event_Heartbeat:
			a.progress()
			return nil
		}
		ev, ok := tendpb.ToEvent(m)
		if !ok {
			return nil
		}
		if err := r.check(&ev); err != nil {
			return err
		}
		if !r.fresh(&ev) {
			return nil
		}
		a.progress()
		// It counts as delivered: that the stream was given up in this very
		// moment must not lose it.
		if !r.put(life, ev) {
			return life.Err()
		}
		return nil
	})
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
	case process.EventResized:
		return r.sizes.fresh(ev)
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
