package run

import (
	"context"
	"errors"
	mrand "math/rand/v2"

	"github.com/tend-run/tend/internal/service/adopt"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// adopt looks for the process that a run is to be. Nothing is done to it: whoever dies
// before that is stored looks again.
func (w *worker) adopt(n int64, o order) {
	g, err := w.s.guard(w.ctx, w.name, o.rules.User)
	var found *supervisor.Adopted
	if err == nil {
		found, err = adopt.Find(w.ctx, o.rules.Adopt, g)
	}
	switch {
	case errors.Is(err, process.ErrUnavailable) || w.ctx.Err() != nil:
		w.tell(supervisor.Event{Kind: supervisor.Unknown, Run: n})
	case err != nil:
		w.tell(supervisor.Event{Kind: supervisor.NotLaunched, Run: n, Text: err.Error()})
	case found == nil:
		w.tell(supervisor.Event{Kind: supervisor.Absent, Run: n})
	default:
		w.become(n, *found, o.rules.Adopt)
	}
}

// become tells that a run is a process, and watches that, unless the run is not wanted any
// more or another service has been quicker.
func (w *worker) become(n int64, a supervisor.Adopted, by *config.Adopt) {
	var o order
	took := false
	_ = w.s.in(w.ctx, func() { // else the next one looks again
		ev := supervisor.Event{Kind: supervisor.Launched, Run: n, Adopted: &a, By: by}
		if by, ok := w.s.set.AdoptedBy(a); ok {
			err := &adopt.RefusedError{PID: a.PID, Why: "is the service " + by + " already"}
			ev = supervisor.Event{Kind: supervisor.NotLaunched, Run: n, Text: err.Error()}
		}
		ev.At, ev.Random = w.s.now(), mrand.Float64()
		w.s.carryOut(w.s.set.Step(w.name, ev))
		o = w.s.order(w.name)
		took = o.run == n && o.adopted != nil
	})
	if took {
		w.watchAdopted(o)
	}
}

// watchAdopted watches the run that was adopted.
func (w *worker) watchAdopted(o order) {
	if p, in, err := w.findRun(w.ctx, o.run, o); err == nil {
		w.watch(p, in, o.run, o)
		w.forget(o.run-keepRuns, o)
	}
}

// guard is what must be known to adopt a process for a service.
func (s *Supervisor) guard(ctx context.Context, name, user string) (*adopt.Guard, error) {
	g := &adopt.Guard{User: user, Manager: s.c.Manager, Others: map[string]supervisor.Adopted{}}
	if s.c.Roles != nil {
		g.Roles = s.c.Roles()
	}
	return g, s.in(ctx, func() {
		for _, other := range s.set.Names() {
			if state, _ := s.set.State(other); other != name && state.Adopted != nil && state.Phase.Alive() {
				g.Others[other] = *state.Adopted
			}
		}
	})
}

// Adopt has a service that does not run be a process that is there already, by its pid. It
// returns once that is written down. Nothing is done to the process.
//
// Errors: process.ErrNotFound for an unknown service or pid; process.ErrRunning; what
// adopt.Check refuses; *process.InvalidError for a service that cannot be adopted.
func (s *Supervisor) Adopt(ctx context.Context, name string, pid int) error {
	user, err := "", error(nil)
	if ierr := s.in(ctx, func() {
		rules := s.set.Rules(name)
		if rules == nil {
			err = &supervisor.UnknownError{Name: name, Known: s.set.Names()}
		} else if key, why := rules.CannotAdopt(); key != "" {
			err = &process.InvalidError{Field: "services." + name + "." + key, Reason: why}
		} else {
			user = rules.User
		}
	}); ierr != nil || err != nil {
		return errors.Join(ierr, err)
	}
	g, err := s.guard(ctx, name, user)
	if err != nil {
		return err
	}
	a, err := adopt.Check(ctx, pid, g)
	if err != nil {
		return err
	}
	ierr := s.in(ctx, func() {
		var todo []supervisor.Do
		if todo, err = s.set.Adopt(name, *a, s.now(), mrand.Float64()); err != nil {
			return
		}
		s.carryOut(todo)
		w, o := s.work(name), s.order(name)
		w.push(func() { w.watchAdopted(o) })
	})
	return errors.Join(ierr, err)
}
