package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor"
	"github.com/tend-run/tend/supervisor/config"
	"github.com/tend-run/tend/supervisor/probe"
)

const (
	goodProbes = 3
	// longHold bounds how long a service must hold that lived long before it failed, and
	// longLife is from when on a run did not end by this fault.
	longHold = 30 * time.Second
	longLife = time.Minute
	lookPace = 100 * time.Millisecond
	// mostStarts is how often it may start anew until it counts as not repaired.
	mostStarts = 2
)

// unwell: the service does not hold.
type unwell struct{ why string }

func (e *unwell) Error() string { return e.why }

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
	return w.holds(ctx, s, hold)
}

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
	first := int64(-1)
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
			return s, &unwell{"it has failed again: " + s.Why}
		case s.Phase == tend.ServiceCompleted:
			return s, &unwell{"it has ended: " + s.Why}
		}
		if first < 0 {
			first = s.Runs
		}
		if s.Runs >= first+mostStarts {
			return s, &unwell{"it does not stay up: " + s.Why}
		}
		if !wait(turn, lookPace) {
			if ctx.Err() != nil {
				return s, ctx.Err()
			}
			return s, &unwell{fmt.Sprintf("%s was not ready within %v: %s", w.order.Service, within, s.Why)}
		}
	}
}

// hold is how long the service must be well.
func (w *worker) hold(ctx context.Context) (time.Duration, error) {
	hold := w.order.Healer.Hold.Std()
	runs, err := w.runs(ctx)
	if err != nil {
		return 0, err
	}
	for _, in := range runs {
		if in.Exit == nil || in.Exit.Time.After(w.order.At) {
			continue
		}
		if lived := in.Exit.Time.Sub(in.Started); lived > 0 && lived <= longLife {
			hold = max(hold, min(lived+lived/4+time.Second, longHold))
		}
	}
	return hold, nil
}

// holds watches one process.
func (w *worker) holds(ctx context.Context, first tend.Service, hold time.Duration) (string, error) {
	p, err := w.client.Get(ctx, process.Selector{ID: first.Process})
	if err != nil {
		return "", err
	}
	r := w.order.Rules
	spec := process.Spec{Env: r.Env, Dir: r.Cwd, User: r.User}
	target := &probe.Target{Process: p, Leader: first.PID, Manager: w.client, Spec: spec}
	begun, good := time.Now(), 0
	pace := max(lookPace, hold/(goodProbes+2))
	for {
		s, err := w.service(ctx)
		if err != nil {
			return "", err
		}
		switch {
		case s.PID != first.PID || s.Runs != first.Runs:
			return "", &unwell{fmt.Sprintf("it did not hold: after %v it was another process: %s", time.Since(begun).Round(time.Millisecond), s.Why)}
		case !s.Ready:
			return "", &unwell{"it did not hold: " + s.Why}
		}
		ok, why := w.ask(ctx, target)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case ok && s.Failures == 0:
			good++
		case !ok:
			return "", &unwell{fmt.Sprintf("it did not hold: after %v: %s", time.Since(begun).Round(time.Millisecond), why)}
		default: // the supervisor's own probe has failed: it must succeed again
			begun, good = time.Now(), 0
		}
		if good >= goodProbes && time.Since(begun) >= hold {
			return fmt.Sprintf("well for %v as pid %d, %d probes", time.Since(begun).Round(100*time.Millisecond), s.PID, good), nil
		}
		if !wait(ctx, pace) {
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
