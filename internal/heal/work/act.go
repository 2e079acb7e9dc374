package work

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/sdk/go"
)

// act tries a remedy. What it has changed is the healer's when it returns, unless this
// process dies in it.
func (w *worker) act(ctx context.Context, e healer.Effect) (healer.Entry, error) {
	out, err := w.try(ctx, e)
	if !e.Remedy.Tree {
		return out, err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	out.Paths, _ = w.project.Changed(last) // they are for people
	return out, err
}

func (w *worker) try(ctx context.Context, e healer.Effect) (healer.Entry, error) {
	switch e.Remedy.Kind {
	case healer.Wait:
		return healer.Entry{}, nil
	case healer.Restart:
		return healer.Entry{Text: "restarted"}, w.restart(ctx)
	case healer.Book:
		return w.playBook(ctx, e)
	case healer.Model:
		return w.askModel(ctx, e)
	case healer.Apply:
		return w.applyHeld(ctx)
	case healer.Undo:
		return w.takeBack(ctx)
	}
	return healer.Entry{}, fmt.Errorf("%q is no remedy that this version knows", e.Remedy.Kind)
}

// playBook carries out the plan of a book, and those of others that match what is wrong
// then: two files that are missing are two plans.
func (w *worker) playBook(ctx context.Context, e healer.Effect) (out healer.Entry, err error) {
	plan, ok := w.planOf(ctx, e.Remedy.Name, nil)
	if !ok {
		return out, fmt.Errorf("%s does not match any more", e.Remedy.Name)
	}
	var done []playbook.Plan
	var said []string
	for len(done) < playbook.MaxRounds {
		if remedyOf(plan).Tree && !e.Remedy.Tree { // without a checkpoint no file is changed
			if len(done) == 0 {
				return out, fmt.Errorf("%s would change files by now, and there is no checkpoint", plan.Book)
			}
			break // it is a remedy of its own, if it was found at first
		}
		done = append(done, plan)
		if err := w.project.Absorb(ctx); err != nil {
			return out, err
		}
		text, err := w.carryOut(ctx, e.Try, plan)
		if merr := w.project.Mark(ctx); err == nil {
			err = merr
		}
		said = append(said, plan.Book+": "+plan.Why)
		if text != "" {
			said = append(said, text)
		}
		out.Text = strings.Join(said, "\n")
		if err != nil {
			return out, err
		}
		if err := w.restart(ctx); err != nil {
			return out, err
		}
		up, err := w.soon(ctx)
		if err != nil {
			return out, err
		}
		if up {
			break
		}
		if plan, ok = w.planOf(ctx, "", done); !ok {
			break
		}
	}
	return out, nil
}

// planOf finds the plan of a book by what is known now; "": the next strong one that was
// not carried out yet.
func (w *worker) planOf(ctx context.Context, book string, done []playbook.Plan) (playbook.Plan, bool) {
	ev, err := w.evidence(ctx)
	if err != nil {
		return playbook.Plan{}, false
	}
	plans, err := w.project.Match(ctx, ev)
	if err != nil {
		return playbook.Plan{}, false
	}
	if book != "" {
		plans = append(plans, w.plans...) // the log may say something else by now
	}
	for _, p := range plans {
		if book != "" && p.Book == book && !p.Proposal() {
			return p, true
		}
		same := func(o playbook.Plan) bool { return o.Book == p.Book && o.Why == p.Why }
		if book == "" && p.Strong && !p.Proposal() && !slices.ContainsFunc(done, same) {
			return p, true
		}
	}
	return playbook.Plan{}, false
}

// soonTime is how long a service may take until it shows that it fails as before.
const soonTime = 10 * time.Second

// soon waits until the service is ready, or has ended once more.
func (w *worker) soon(ctx context.Context) (bool, error) {
	first, err := w.service(ctx)
	if err != nil {
		return false, err
	}
	for end := time.Now().Add(soonTime); time.Now().Before(end); {
		s, err := w.service(ctx)
		if err != nil {
			return false, err
		}
		if s.Ready {
			return true, nil
		}
		if s.Runs > first.Runs || s.Phase == tend.ServiceFailed || s.Phase == tend.ServicePausing {
			return false, nil
		}
		if !backoff.Wait(ctx, lookPace/2) {
			return false, ctx.Err()
		}
	}
	return true, nil // slow, and nothing says that it fails: verify waits longer
}

// carryOut carries out one plan.
func (w *worker) carryOut(ctx context.Context, try int, p playbook.Plan) (string, error) {
	var said []string
	for n := 0; len(p.Actions) > 0; p.Actions = p.Actions[n:] {
		if err := ctx.Err(); err != nil {
			return strings.Join(said, "\n"), err
		}
		a := p.Actions[0]
		n = 1
		for a.Makes != "" && n < len(p.Actions) && p.Actions[n].Makes == a.Makes { // they are of one view
			n++
		}
		text, done, err := w.installApart(ctx, try, p.Actions[:n])
		if !done && err == nil {
			n = 1
			text, err = w.carry(ctx, try, a)
		}
		if text != "" {
			said = append(said, text)
		}
		if err != nil {
			return strings.Join(said, "\n"), fmt.Errorf("%s: %w", a.Reason, err)
		}
	}
	if len(p.Verify) > 0 {
		if text, err := w.must(ctx, command{argv: p.Verify, dir: w.project.Root(), env: w.environ(), time: commandTime}); err != nil {
			return strings.Join(append(said, text), "\n"), err
		}
	}
	return strings.Join(said, "\n"), nil
}

// carry carries out one action.
func (w *worker) carry(ctx context.Context, try int, a playbook.Action) (string, error) {
	full := path.Join(filepath.ToSlash(w.project.Root()), a.Path)
	switch a.Kind {
	case playbook.Restart, playbook.Propose:
		return "", nil // a restart follows each plan
	case playbook.Run:
		for _, dir := range a.Aside {
			if err := w.project.MoveAside(ctx, try, dir); err != nil {
				return "", err
			}
		}
		return w.must(ctx, command{argv: a.Argv, dir: full, env: w.environ(), time: installTime})
	case playbook.Restore:
		if err := w.project.Absent(ctx, a.Path); err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(ctx, commandTime)
		defer cancel()
		return "", w.project.CheckOut(ctx, a.Path)
	case playbook.Remove:
		return "removed " + a.Path, w.project.MoveAside(ctx, try, a.Path)
	case playbook.EndPortHolder:
		left, err := w.endLeft(ctx)
		if err != nil {
			return "", err
		}
		spared, err := w.managed(ctx)
		if err != nil {
			return "", err
		}
		held, err := w.project.EndHolder(ctx, a.Port, spared, w.order.Healer.EndOthers)
		return strings.TrimPrefix(left+"\n"+held, "\n"), err
	case playbook.EndOrphans:
		return w.endLeft(ctx)
	case playbook.SetEnv:
		// What steps before have made is the healer's, and the checkpoint has to know it.
		if err := w.project.Mark(ctx); err != nil {
			return "", err
		}
		return "set " + a.Name + " in " + a.Path, w.project.SetEnv(ctx, a.Path, a.Name, a.Value)
	case playbook.Truncate:
		return w.project.Truncate(ctx, a.Path, a.Keep)
	}
	return "", fmt.Errorf("%q is no action that this version knows", a.Kind)
}

// must runs a command that has to succeed.
func (w *worker) must(ctx context.Context, c command) (string, error) {
	line := strings.Join(c.argv, " ")
	c.tell = true
	r, err := w.run(ctx, c)
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	return line, succeeded(line, r, c.time)
}

// succeeded says why a program has not ended as it had to.
func succeeded(line string, r view.Ran, within time.Duration) error {
	switch {
	case r.TimedOut:
		return fmt.Errorf("%s did not end within %v:\n%s", line, within, firstLines(r.Output))
	case !r.OK():
		return fmt.Errorf("%s: %v:\n%s", line, r.Exit, firstLines(r.Output))
	}
	return nil
}
