package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tend-run/tend/process"
)

// Target is what Wait needs of a process. Every [process.Process] is one.
type Target interface {
	Info(ctx context.Context) (process.Info, error)
	Read(ctx context.Context, opts process.ReadOptions) (process.Reader, error)
}

// How often conditions that cause no event are checked: often at first, then less
// and less, and often again after output.
const (
	minPause = 20 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// Wait returns when the condition holds or the process has exited, whichever
// is first. TreeGone and EOF go on after the exit, since they can hold only
// then. Exit of the result is set whenever the process had exited by the time
// Wait returned.
//
// Errors: *process.InvalidError; process.ErrNotFound when the process is or
// gets removed; process.ErrOffset for Until.From; process.ErrUnsupported and
// process.ErrPermission where the machine can't be asked for ports or input;
// the context's.
func Wait(ctx context.Context, p Target, until process.Until) (process.WaitResult, error) {
	wait, err := condition(&until)
	if err != nil {
		return process.WaitResult{}, err
	}
	res, err := wait(ctx, p)
	if err != nil {
		return process.WaitResult{}, err
	}
	return completed(ctx, p, res)
}

// completed adds what is known of the process once the wait is over. Its frame is not on
// the stack of those that still wait, of which there is one for each service.
func completed(ctx context.Context, p Target, res process.WaitResult) (process.WaitResult, error) {
	in, err := p.Info(ctx)
	switch {
	case err == nil:
		if res.Exit == nil {
			res.Exit = in.Exit
		}
		res.Streams = in.Streams
	case res.Exit == nil && !res.Met:
		return process.WaitResult{}, err
	}
	return res, nil
}

// condition picks the first field that is set and checks its value.
func condition(u *process.Until) (func(context.Context, Target) (process.WaitResult, error), error) {
	switch {
	case u.Quiet != 0:
		if u.Quiet < 0 || u.Quiet > process.MaxTimeout {
			return nil, &process.InvalidError{Field: "quiet", Reason: fmt.Sprintf("is %v; more than 0 and at most %v are allowed",
				u.Quiet, process.MaxTimeout)}
		}
		return func(ctx context.Context, p Target) (process.WaitResult, error) { return waitQuiet(ctx, p, u.Quiet) }, nil
	case u.Match != "":
		m, err := NewMatcher(u.Match)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, p Target) (process.WaitResult, error) { return waitMatch(ctx, p, m, u.From) }, nil
	case u.Port != 0:
		if u.Port < 0 || u.Port > 65535 {
			return nil, &process.InvalidError{Field: "port", Reason: fmt.Sprintf("is %d; 1 to 65535 are ports", u.Port)}
		}
		return func(ctx context.Context, p Target) (process.WaitResult, error) { return waitPort(ctx, p, u.Port) }, nil
	case u.Input:
		return waitInput, nil
	case u.TreeGone:
		return waitTreeGone, nil
	case u.EOF:
		return waitEOF, nil
	}
	return waitExit, nil
}

func waitExit(ctx context.Context, p Target) (process.WaitResult, error) {
	r, exit, err := readFacts(ctx, p)
	if err != nil {
		return process.WaitResult{}, err
	}
	if exit != nil {
		return process.WaitResult{Exit: exit, Met: true}, nil
	}
	defer r.Close()
	for {
		ev, what, err := next(ctx, r, nil)
		switch {
		case err != nil:
			return process.WaitResult{}, err
		case what == ended || ev.Kind == process.EventRemoved:
			return process.WaitResult{}, process.ErrNotFound
		case ev.Kind == process.EventExited:
			return process.WaitResult{Exit: ev.Exit, Met: true}, nil
		}
	}
}

// readFacts returns a reader that delivers the facts and no byte of output, or the exit of
// a process that has ended.
func readFacts(ctx context.Context, p Target) (process.Reader, *process.Exit, error) {
	in, err := p.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	if in.Exit != nil {
		return nil, in.Exit, nil
	}
	absent := process.PTY // a stream that the process does not have
	if in.Spec.PTY != nil {
		absent = process.Stdout
	}
	r, err := p.Read(ctx, process.ReadOptions{Streams: []process.Stream{absent}})
	return r, nil, err
}

func waitEOF(ctx context.Context, p Target) (process.WaitResult, error) {
	res, err := waitExit(ctx, p)
	if err != nil {
		return res, err
	}
	r, err := p.Read(ctx, process.ReadOptions{From: fromNow, Unordered: true, Drain: -1})
	if err != nil {
		return process.WaitResult{}, err
	}
	defer r.Close()
	for {
		ev, what, err := next(ctx, r, nil)
		switch {
		case err != nil:
			return process.WaitResult{}, err
		case ev.Kind == process.EventRemoved:
			return process.WaitResult{}, process.ErrNotFound
		case what == ended:
			return res, nil
		}
	}
}

func waitTreeGone(ctx context.Context, p Target) (process.WaitResult, error) {
	res, err := waitExit(ctx, p)
	if err != nil {
		return res, err
	}
	for pause := minPause; ; pause = min(pause*2, maxPause) {
		in, err := p.Info(ctx)
		if err != nil {
			return process.WaitResult{}, err
		}
		if in.TreeGone {
			return res, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return process.WaitResult{}, ctx.Err()
		}
	}
}

var fromNow = [4]int64{process.FromNow, process.FromNow, process.FromNow, process.FromNow}

// happening is what next returned for.
type happening uint8

const (
	fact   happening = iota // an event
	timeUp                  // the timer fired
	ended                   // the reader has no more
)

// next waits for the next event, the timer or the end of the context. A timer
// that has fired comes before events that are there.
func next(ctx context.Context, r process.Reader, timer <-chan time.Time) (process.Event, happening, error) {
	for {
		select {
		case <-timer:
			return process.Event{}, timeUp, nil
		default:
		}
		if err := ctx.Err(); err != nil {
			return process.Event{}, ended, err
		}
		if ev, what, err := atHand(r); what != timeUp {
			return ev, what, err
		}
		select {
		case <-r.Ready():
		case <-timer:
			return process.Event{}, timeUp, nil
		case <-ctx.Done():
			return process.Event{}, ended, ctx.Err()
		}
	}
}

// atHand returns what a reader has now; timeUp: it has nothing.
func atHand(r process.Reader) (process.Event, happening, error) {
	ev, ok, err := r.Next()
	switch {
	case errors.Is(err, io.EOF):
		return process.Event{}, ended, nil
	case err != nil:
		return process.Event{}, ended, err
	case ok:
		return ev, fact, nil
	}
	return process.Event{}, timeUp, nil
}
