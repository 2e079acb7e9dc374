package tend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
)

// Retry says when a lost connection is replaced. The zero value is the default: after
// 0.5 s, doubling to 8 s, each shortened by up to a quarter at random, so that many
// clients do not reconnect at once; at most 10 times without progress.
//
// If a server announces that it is going away, the client reconnects at once. It also
// does so if the server's hello said that its listening sockets survive it: the
// connection then waits for the next server. After a kill nothing is retried, neither
// the kill nor its output.
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

// attempts counts those of one call or stream.
type attempts struct {
	policy Retry
	held   bool // the server's listening sockets outlive it
	n      int
	random func() float64

	patience time.Duration // since heard; 0: without bound
	heard    time.Time     // the last progress, or the loss of the connection after it
}

// progress starts the count again.
func (a *attempts) progress() { a.n, a.heard = 0, time.Now() }

// next returns how long to wait before the next attempt, and false when there is no
// next one. A server that goes away, or whose listening sockets are held, is called
// at once the first time. A second time in a row is delayed: nothing may spin.
func (a *attempts) next(goingAway bool) (time.Duration, bool) {
	a.n++
	if a.n > a.policy.Attempts || a.patience > 0 && time.Since(a.heard) > a.patience {
		return 0, false
	}
	if (goingAway || a.held) && a.n == 1 {
		return 0, true
	}
	return a.policy.delay(a.n, a.random()), true
}

// errAway ends a stream whose server said that it is going away. The text is for
// one that was not followed by another server.
var errAway = connect.NewError(connect.CodeUnavailable, errors.New("the server went away again and again"))

// repeat runs try until it succeeds. It gives up at an error that another
// connection cannot change, at one that last reports as final, with the context,
// and after the last attempt. It is the only loop over lost connections. try must
// be safe to repeat: it continues from an offset, or its id or offset shows the
// server what was done before.
func (c *Client) repeat(ctx context.Context, what string, last func(error) bool, try func(*attempts) error) error {
	a := &attempts{policy: c.retry, held: c.server.Load().GetListenersHeld(), random: rand.Float64, patience: c.patient, heard: time.Now()}
	for {
		generation := c.conns.current()
		err := try(a)
		away := errors.Is(err, errAway)
		if away || errors.Is(err, errSilent) {
			c.conns.replace(generation)
		}
		if err == nil || ctx.Err() != nil || !transient(err) || last(err) {
			return c.domainError(ctx, err)
		}
		if a.n == 0 && !errors.Is(err, errSilent) {
			a.heard = time.Now() // it was there until now, however long it had nothing to say
		}
		wait, ok := a.next(away)
		if !ok {
			return c.domainError(ctx, err)
		}
		c.log.Debug("try again", "what", what, "in", wait, "err", err)
		if !backoff.Wait(ctx, wait) {
			return c.domainError(ctx, err)
		}
	}
}

// never is for calls that no error of a connection ends.
func never(error) bool { return false }

// repeatCall is repeat for a call that has one answer. Each attempt lasts at most
// c.silence; a server that answers a hello then is there, and what was asked takes
// that long.
func (c *Client) repeatCall(ctx context.Context, what string, last func(error) bool, f func(context.Context) error) error {
	return c.repeat(ctx, what, last, func(a *attempts) error {
		for {
			generation := c.conns.current()
			attempt, cancel := context.WithTimeoutCause(ctx, c.silence, errSilent)
			err := f(attempt)
			if err != nil {
				err = causeOf(attempt, err)
			}
			cancel()
			if !errors.Is(err, errSilent) || last(err) {
				return err
			}
			// The other idle connections may be as dead as this one: a hello on one
			// that lives says nothing about the next that the call would take.
			c.conns.replace(generation)
			if !c.answers(ctx) {
				return err
			}
			a.progress()
		}
	})
}

// answers reports whether the server answers a hello in less than c.silence.
func (c *Client) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.silence)
	defer cancel()
	return c.hello(ctx) == nil
}

// runs is how a call is made: by Client.call or Client.once.
type runs func(ctx context.Context, f func(context.Context) error) error

// unary is a call of the API with one answer, which read gets; nil: it is of no use.
func unary[Q, A any](rpc func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q,
	read func(*A) error) func(context.Context) error {
	return func(ctx context.Context) error {
		resp, err := rpc(ctx, connect.NewRequest(req))
		if err != nil || read == nil {
			return err
		}
		return read(resp.Msg)
	}
}

// checked is unary for a request with text of the caller in a field: text that no message can
// hold is reported without asking.
func checked[Q, A any](field string, rpc func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q,
	read func(*A) error) func(context.Context) error {
	ask := unary(rpc, req, read)
	return func(ctx context.Context) error {
		if err := sendable(field, any(req).(proto.Message)); err != nil {
			return err
		}
		return ask(ctx)
	}
}

// mapped converts each of a list; of none it is nil.
func mapped[M, T any](from []M, to func(M) T) (all []T) {
	for _, m := range from {
		all = append(all, to(m))
	}
	return all
}

// needs fails on a server of a former version, without what is asked for: it would do to the
// machine what is meant for a sandbox, say. It may have been replaced since it said what it
// knows, so it is asked again.
func (c *Client) needs(ctx context.Context, known func(*tendv1.HelloResponse) bool, without string) error {
	if known(c.server.Load()) {
		return nil
	}
	if err := c.call(ctx, c.hello); err != nil {
		return err
	}
	if !known(c.server.Load()) {
		return formerVersion(without)
	}
	return nil
}

// formerVersion says what a server of a former version is without.
func formerVersion(without string) error {
	return fmt.Errorf("%w: the server %s of a former version: tend upgrade replaces it", process.ErrUnsupported, without)
}

// knownCall is the error of a call that a server of a former version does not know, with what
// it is without.
func knownCall(err error, without string) error {
	if connect.CodeOf(err) == connect.CodeUnimplemented && !errors.Is(err, process.ErrUnsupported) {
		return formerVersion(without)
	}
	return err
}

// call runs a call that may be repeated.
func (c *Client) call(ctx context.Context, f func(context.Context) error) error {
	return c.repeatCall(ctx, "call", never, f)
}

// once runs a call that may not be repeated. A client with patience gives up when
// the server has gone away meanwhile; what was asked may have been done then.
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
