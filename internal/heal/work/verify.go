package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const (
	goodProbes = 3
	// longHold bounds how long a service must hold that lived long before it failed, and
	// longLife is from when on a run did not end by this fault.
	longHold = 30 * time.Second
	longLife = time.Minute
	lookPace = 100 * time.Millisecond
	// mostStarts is how often it may start anew by itself until it counts as not repaired.
	mostStarts = 2
	// mostAsked is how often it may be started anew by others while it is looked at.
	mostAsked = 10
)

// unwell: the service does not hold.
type unwell struct{ why string }

func (e *unwell) Error() string { return e.why }

// reason adds to a fault what is known of it, which may be nothing.
func reason(fault string, known ...string) *unwell {
	if why := cmp.Or(known...); why != "" {
		fault += ": " + why
	}
	return &unwell{fault}
}

// lastEnd is how the newest run that has ended did so; "": none has. The supervisor says
// nothing of it any more once the next run has begun.
func lastEnd(s tend.Service) string {
	if s.Exit == nil {
		return ""
	}
	return s.Exit.String()
}

// verify waits until the service is ready, and then whether it stays so: good probes in a
// row, of one process, for longer than it has lived before it failed. The probes are those
// of the supervisor, which are tied to the process, and more of the same by us.
func (w *worker) verify(ctx context.Context) (string, error) {
	s, err := w.awaitReady(ctx, startWithin(w.order.Rules))
	if err != nil {
		return "", err
	}
	hold, err := w.hold(ctx)
	if err != nil {
		return "", err
	}
	for range mostAsked {
		said, err := w.holds(ctx, s, hold)
		if _, ok := errors.AsType[*aside](err); !ok {
			return said, err
		}
		if s, err = w.awaitReady(ctx, startWithin(w.order.Rules)); err != nil {
			return "", err
		}
	}
	return "", &unwell{fmt.Sprintf("it was restarted %d times while it was looked at, for changed files or by somebody", mostAsked)}
}

// aside: the process was replaced, and that was not the service's fault. Files that are
// watched were changed, often by the repair itself, or somebody has asked for it.
type aside struct{}

func (*aside) Error() string { return "it was restarted, which was asked for" }

// startWithin is how long the service may take until it is ready.
func startWithin(r *config.Service) time.Duration {
	for _, p := range []*config.Probe{r.Health, r.Startup} {
		if p != nil && p.Start > 0 {
			return p.Start.Std() + 10*time.Second
		}
	}
	return startTime
}

// awaitReady waits until the service can be used.
func (w *worker) awaitReady(ctx context.Context, within time.Duration) (tend.Service, error) {
	turn, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	first := int64(-1) // restarts by itself
	for {
		s, err := w.service(turn)
		switch {
		case err != nil && turn.Err() != nil && ctx.Err() == nil:
			return s, &unwell{fmt.Sprintf("%s was not ready within %v", w.order.Service, within)}
		case err != nil:
			return s, err
		case s.Ready && s.PID > 0 && s.Failures == 0:
			return s, nil
		case s.Phase == tend.ServiceFailed:
			return s, reason("it has failed again", s.Why, lastEnd(s))
		case s.Phase == tend.ServiceCompleted:
			return s, reason("it has ended", s.Why, lastEnd(s))
		}
		if first < 0 {
			first = s.Restarts
		}
		if s.Restarts >= first+mostStarts {
			return s, reason("it does not stay up", lastEnd(s), s.Why) // a probe of the next run may say something, too
		}
		if !backoff.Wait(turn, lookPace) {
			if ctx.Err() != nil {
				return s, ctx.Err()
			}
			return s, reason(fmt.Sprintf("%s was not ready within %v", w.order.Service, within), s.Why)
		}
	}
}

// hold is how long the service must be well.
func (w *worker) hold(ctx context.Context) (time.Duration, error) {
	if err := w.seeLives(ctx); err != nil {
		return 0, err
	}
	hold := w.order.Healer.Hold.Std()
	if w.lived > 0 {
		hold = max(hold, min(w.lived+w.lived/4+time.Second, longHold))
	}
	return hold, nil
}

// seeLives remembers how long the service has lived at most until it failed: before the
// repair, and in attempts that did not help, of whose runs few are kept. What ended
// because somebody asked for it says nothing, unless that was the supervisor before.
func (w *worker) seeLives(ctx context.Context) error {
	runs, err := w.runs(ctx)
	if err != nil {
		return err
	}
	for _, in := range runs {
		if in.Exit == nil || in.Exit.Time.After(w.order.At) && in.Exit.Cause == process.CauseKilled {
			continue
		}
		if lived := in.Exit.Time.Sub(in.Started); lived <= longLife {
			w.lived = max(w.lived, lived)
		}
	}
	return nil
}

// holds watches one process. aside: it was replaced, and the next one is to be watched.
func (w *worker) holds(ctx context.Context, first tend.Service, hold time.Duration) (string, error) {
	var p process.Process // of one that was adopted there is none; its probes need none
	if first.Process != "" {
		var err error
		if p, err = w.there.Get(ctx, process.Selector{ID: first.Process}); err != nil {
			return "", err
		}
	}
	r := w.order.Rules
	spec := process.Spec{Env: r.Env, Dir: r.Cwd, User: r.User}
	target := &probe.Target{Process: p, Leader: first.PID, Manager: w.there, Spec: spec}
	if w.sandbox != nil {
		target.Dial = w.dialInside
	}
	begun, good := time.Now(), 0
	every := max(lookPace, hold/(goodProbes+2))
	for {
		s, err := w.service(ctx)
		if err != nil {
			return "", err
		}
		switch between := s.Phase.Alive() && s.Phase != tend.ServiceRunning || s.Phase == tend.ServiceWaiting; {
		case s.Restarts != first.Restarts:
		case s.Runs > first.Runs:
			return "", &aside{}
		case between: // what it ended for is known once the next run begins, or none does
			if !backoff.Wait(ctx, lookPace) {
				return "", ctx.Err()
			}
			continue
		}
		switch {
		case s.PID != first.PID || s.Runs != first.Runs:
			return "", reason(fmt.Sprintf("it did not hold: after %v it was another process", time.Since(begun).Round(time.Millisecond)),
				s.Why, lastEnd(s))
		case !s.Ready:
			return "", reason("it did not hold", s.Why)
		}
		ok, why := w.ask(ctx, target)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case ok && s.Failures == 0:
			good++
		case !ok:
			return "", reason(fmt.Sprintf("it did not hold: after %v", time.Since(begun).Round(time.Millisecond)), why)
		default: // the supervisor's own probe has failed: it must succeed again
			begun, good = time.Now(), 0
		}
		if good >= goodProbes && time.Since(begun) >= hold {
			return fmt.Sprintf("well for %v as pid %d, %d probes", time.Since(begun).Round(100*time.Millisecond), s.PID, good), nil
		}
		if !backoff.Wait(ctx, every) {
			return "", ctx.Err()
		}
	}
}

// ask puts the service's own probes to it once more.
func (w *worker) ask(ctx context.Context, t *probe.Target) (bool, string) {
	for _, role := range []supervisor.Role{supervisor.Startup, supervisor.Readiness, supervisor.Liveness} {
		rule := supervisor.ProbeOf(w.order.Rules, role)
		if rule == nil || rule.Log != "" {
			continue
		}
		// A machine without time says nothing about the service; twice is no accident.
		a := probe.Ask(ctx, rule, t)
		for range 2 {
			if a.OK || !a.Doubt {
				break
			}
			a = probe.Ask(ctx, rule, t)
		}
		if !a.OK {
			return false, a.Text
		}
	}
	return true, ""
}

// isGone reports whether an error says that there is nothing to repair any more.
func isGone(err error) bool {
	_, ok := errors.AsType[*goneError](err)
	return ok
}
