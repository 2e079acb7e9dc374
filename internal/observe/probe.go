package observe

import (
	"context"
	"net/netip"
	"time"

	"github.com/tend-run/tend/process"
)

// inputQuiet is how long output must have been quiet before the process is
// asked whether it waits for input: a prompt is written first.
const inputQuiet = 100 * time.Millisecond

// waitPort waits until something in the tree listens on the port.
func waitPort(ctx context.Context, p Target, port int) (process.WaitResult, error) {
	return poll(ctx, p, func(in *process.Info, _ time.Duration) (process.WaitResult, error) {
		var res process.WaitResult
		all, err := Listening(in.PID, in.Session)
		for _, l := range all {
			if a, err := netip.ParseAddrPort(l.Address); err == nil && int(a.Port()) == port {
				res.Met, res.Listening = true, append(res.Listening, l)
			}
		}
		return res, err
	})
}

// waitInput waits until the tree reads from its stdin or terminal. It takes
// two looks that agree, with nothing written in between, since a process that
// is about to be woken by input still looks blocked.
func waitInput(ctx context.Context, p Target) (process.WaitResult, error) {
	last, accepted := process.InputNone, int64(-1)
	return poll(ctx, p, func(in *process.Info, quiet time.Duration) (process.WaitResult, error) {
		if quiet < inputQuiet {
			last = process.InputNone
			return process.WaitResult{}, nil
		}
		now, err := Input(in.PID, in.Session)
		if err != nil {
			return process.WaitResult{}, err
		}
		met := now != process.InputNone && now == last && in.Stdin.Accepted == accepted
		last, accepted = now, in.Stdin.Accepted
		return process.WaitResult{Met: met, Input: now}, nil
	})
}

// poll looks again and again: after output soon, otherwise with growing
// pauses, until look says that it is met or the process has exited.
func poll(ctx context.Context, p Target, look func(in *process.Info, quiet time.Duration) (process.WaitResult,
	error)) (process.WaitResult, error) {
	r, err := p.Read(ctx, process.ReadOptions{From: fromNow, Unordered: true})
	if err != nil {
		return process.WaitResult{}, err
	}
	defer r.Close()
	output := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := minPause
	for {
		ev, what, err := next(ctx, r, timer.C)
		switch {
		case err != nil:
			return process.WaitResult{}, err
		case what == ended:
			return process.WaitResult{}, nil
		case what == fact && ev.Kind == process.EventExited:
			return process.WaitResult{Exit: ev.Exit}, nil
		case what == fact && (ev.Kind == process.EventOutput || ev.Kind == process.EventGap):
			output = time.Now()
			if pause > minPause {
				pause = minPause
				timer.Reset(pause)
			}
			continue
		case what == fact:
			continue
		}
		in, err := p.Info(ctx)
		if err != nil {
			return process.WaitResult{}, err
		}
		if in.Exit != nil {
			return process.WaitResult{Exit: in.Exit}, nil
		}
		res, err := look(&in, time.Since(output))
		if err != nil || res.Met {
			return res, err
		}
		if res.Input != process.InputNone {
			pause = minPause // the second look follows soon
		}
		timer.Reset(pause)
		pause = min(pause*2, maxPause)
	}
}
