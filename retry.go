package tend

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Retry says how lost connections are made anew. The zero value is the
// default: after 0.5 s, doubling to 8 s, each shortened by up to a quarter at
// random so that many clients do not come at once; at most 10 times without
// progress.
//
// A server that says it is going away is called again at once, and so is one
// that said in its hello that its listening sockets outlive it: the connection
// then waits for the next server. What a caller asked to kill is never tried
// again, neither the kill nor its output.
type Retry struct {
	First    time.Duration // 0: 500 ms
	Max      time.Duration // 0: 8 s
	Attempts int           // 0: 10; negative: none
}

func (r Retry) withDefaults() Retry {
	if r.First <= 0 {
		r.First = 500 * time.Millisecond
	}
	if r.Max <= 0 {
		r.Max = 8 * time.Second
	}
	switch {
	case r.Attempts == 0:
		r.Attempts = 10
	case r.Attempts < 0:
		r.Attempts = 0
	}
	return r
}

// delay is how long to wait before the nth attempt, n from 1. random is in
// [0, 1).
func (r Retry) delay(n int, random float64) time.Duration {
	d := r.First
	for ; n > 1 && d < r.Max; n-- {
		d *= 2
	}
	d = min(d, r.Max)
	return d - time.Duration(random*float64(d)/4)
}

// retrying counts the attempts of one call or stream.
type retrying struct {
	policy Retry
	held   bool // the server's listening sockets outlive it
	n      int
	random func() float64

	patience time.Duration // since heard; 0: without bound
	heard    time.Time     // the last progress
}

func (c *Client) retrying() *retrying {
	return &retrying{policy: c.retry, held: c.held.Load(), random: rand.Float64, patience: c.patient, heard: time.Now()}
}

// progress starts the count anew.
func (r *retrying) progress() { r.n, r.heard = 0, time.Now() }

// next returns how long to wait before the next attempt, and false when there
// was the last. A server that goes away, or whose listening sockets are held,
// is called at once, but a second one in a row is not: nothing may spin.
func (r *retrying) next(goingAway bool) (time.Duration, bool) {
	r.n++
	if r.n > r.policy.Attempts || r.patience > 0 && time.Since(r.heard) > r.patience {
		return 0, false
	}
	if (goingAway || r.held) && r.n == 1 {
		return 0, true
	}
	return r.policy.delay(r.n, r.random()), true
}

// pause waits for d, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call runs one call of the API. A call that may be repeated is, when the
// connection failed; each attempt of it lasts at most c.silence.
func (c *Client) call(ctx context.Context, repeatable bool, f func(context.Context) error) error {
	if !repeatable {
		return c.once(ctx, f)
	}
	r := c.retrying()
	for {
		turn := c.road.taken()
		attempt, cancel := context.WithTimeoutCause(ctx, c.silence, errSilent)
		err := f(attempt)
		if err != nil && errors.Is(context.Cause(attempt), errSilent) {
			err = errSilent
			c.road.leave(turn)
			if c.patient > 0 && c.hello(ctx) == nil {
				r.progress() // the server is there: what was asked takes that long
			}
		}
		cancel()
		if err == nil || ctx.Err() != nil || !transient(err) {
			return c.domainError(ctx, err)
		}
		wait, ok := r.next(false)
		if !ok {
			return c.domainError(ctx, err)
		}
		c.log.Debug("call again", "in", wait, "err", err)
		if pause(ctx, wait) != nil {
			return c.domainError(ctx, err)
		}
	}
}

// once is call for what is not repeated. A client with patience gives up when the
// server has gone away meanwhile; what was asked may have been done then.
func (c *Client) once(ctx context.Context, f func(context.Context) error) error {
	if c.patient <= 0 {
		return c.domainError(ctx, f(ctx))
	}
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- f(attempt) }()
	look := time.NewTicker(c.silence)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return c.domainError(ctx, causeOf(attempt, err))
		case <-look.C:
			if c.hello(ctx) != nil {
				cancel(errSilent)
			}
		}
	}
}
