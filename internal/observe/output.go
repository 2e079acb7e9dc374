package observe

import (
	"context"
	"time"

	"github.com/tend-run/tend/process"
)

// waitQuiet waits until no output came for d, counted from the call.
func waitQuiet(ctx context.Context, p Target, d time.Duration) (process.WaitResult, error) {
	r, err := p.Read(ctx, process.ReadOptions{From: fromNow, Unordered: true})
	if err != nil {
		return process.WaitResult{}, err
	}
	defer r.Close()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		ev, what, err := next(ctx, r, timer.C)
		switch {
		case err != nil:
			return process.WaitResult{}, err
		case what == timeUp:
			return process.WaitResult{Met: true}, nil
		case what == ended:
			return process.WaitResult{}, nil
		}
		switch ev.Kind {
		case process.EventExited:
			return process.WaitResult{Exit: ev.Exit}, nil
		case process.EventOutput, process.EventGap:
			timer.Reset(d)
		}
	}
}

// settle is how long an unfinished line must stand still until it is searched
// as it is: a prompt has no line end, but a line that is being written should
// be judged as a whole.
const settle = 100 * time.Millisecond

// late is how much later than the time of an event its data may have come.
const late = 100 * time.Millisecond

// unsettled is how much longer a line must stand still whose last output has this time.
// It is not counted from the wait: one that begins again with each server, of which none
// lives for long, would find no prompt.
func unsettled(written, now time.Time) time.Duration {
	if written.IsZero() {
		return settle
	}
	return min(max(written.Add(late+settle).Sub(now), 0), settle)
}

// waitMatch searches the output from the given offsets on.
func waitMatch(ctx context.Context, p Target, m *Matcher, from [4]int64) (process.WaitResult, error) {
	r, err := p.Read(ctx, process.ReadOptions{From: from})
	if err != nil {
		return process.WaitResult{}, err
	}
	defer r.Close()
	timer := time.NewTimer(settle)
	defer timer.Stop()
	var res process.WaitResult
	met := func(f Found) (process.WaitResult, error) {
		res.Met, res.Match, res.Stream, res.Offset = true, f.Text, f.Stream, f.Offset
		return res, nil
	}
	for {
		ev, what, err := next(ctx, r, timer.C)
		if what == timeUp { // the rest of the line may have come
			ev, what, err = atHand(r)
		}
		switch {
		case err != nil:
			return process.WaitResult{}, err
		case what == timeUp || what == ended:
			for s := process.Stdout; s <= process.PTY; s++ {
				if f, ok := m.Settle(s); ok {
					return met(f)
				}
			}
			if what == ended {
				return res, nil
			}
			continue // the timer is armed by the next output
		}
		switch ev.Kind {
		case process.EventExited:
			res.Exit = ev.Exit
		case process.EventGap:
			if f, ok := m.Settle(ev.Gap.Stream); ok {
				return met(f)
			}
			m.Skip(ev.Gap.Stream)
		case process.EventOutput:
			if f, ok := m.Add(ev.Stream, ev.Offset, ev.Data); ok {
				return met(f)
			}
			timer.Reset(unsettled(ev.Time, time.Now()))
		}
	}
}
