package work

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// noView: there can be no view of the project.
type noView struct{ err error }

func (e *noView) Error() string { return "there can be no view of the project: " + e.err.Error() }
func (e *noView) Unwrap() error { return project.ErrNoCommands }

// openView returns the view in which models act. What it shows of the machine is found anew.
func (w *worker) openView(ctx context.Context) (v *view.View, hide []string, err error) {
	seen, err := w.project.Shown(ctx)
	if errors.Is(err, project.ErrNoCommands) {
		return nil, nil, &noView{err}
	}
	if err != nil {
		return nil, nil, err
	}
	seen.Show = append(seen.Show, w.order.Healer.Show...)
	if w.view != nil {
		w.view.Show = seen.Show
		return w.view, seen.Hide, nil
	}
	rules := *w.order.Rules
	if real, err := filepath.EvalSymlinks(rules.Cwd); err == nil && w.sandbox == nil {
		rules.Cwd = real
	}
	c := view.Config{
		Client: w.client, ID: w.order.ID, Root: w.project.Root(), Rules: &rules, Of: w.sandbox, Path: w.commandPath(), Show: seen.Show,
		Limits: process.Limits{MemoryMax: commandMemory, PidsMax: commandPids, Nice: 5},
	}
	var to net.Dialer
	c.Self, c.Dial = w.self, to.DialContext
	if w.sandbox != nil {
		c.Dial = w.dialInside
	}
	for _, text := range w.order.Healer.Pass {
		if one, err := config.PassOf(text); err == nil { // else it was refused
			c.Pass = append(c.Pass, one)
		}
	}
	switch {
	case w.sandbox != nil:
		in, err := w.sandbox.Info(ctx)
		if err != nil {
			return nil, nil, err
		}
		if in.Isolation == tend.IsolationNone {
			return nil, nil, &noView{errors.New("its sandbox is not isolated")}
		}
		c.User = w.inside
	case rules.User != "":
		if c.User, err = idsOf(rules.User); err != nil {
			return nil, nil, err
		}
	}
	if v, err = view.Open(ctx, c); err != nil {
		if ctx.Err() != nil || errors.Is(err, process.ErrUnavailable) {
			return nil, nil, err
		}
		return nil, nil, &noView{err}
	}
	w.view = v
	return v, seen.Hide, nil
}

// dropView has the next view be one of what the project is then: that of a sandbox is made of a snapshot.
func (w *worker) dropView(ctx context.Context) error {
	if w.view == nil || w.sandbox == nil {
		return nil
	}
	v := w.view
	w.view = nil
	return v.Close(ctx)
}

// trial is whether the service fails in a view as it does outside.
type trial struct {
	done bool
	// well: it does not fail there. why says what is different; "": it fails in the same way.
	well bool
	why  string
}

// tried starts the service in a view, with nothing changed: what is not wrong there is not in the
// files of the project, and what is wrong otherwise cannot be proved.
func (w *worker) tried(ctx context.Context, v *view.View) (trial, error) {
	if kind := w.order.Signal.Kind; kind == "pressure" || kind == "stuck" {
		w.trial.done = true // nobody looks for these there: the real service shows whether it has helped
	}
	if w.trial.done {
		return w.trial, nil
	}
	hold, err := w.hold(ctx)
	if err != nil {
		return trial{}, err
	}
	ev, err := w.evidence(ctx)
	if err != nil {
		return trial{}, err
	}
	out, err := v.Run(ctx, &view.Set{}, view.Look{Env: w.order.Rules.Env, Start: startWithin(w.order.Rules), Hold: hold})
	if err != nil {
		return trial{}, err
	}
	w.trial = trial{done: true, well: out.Well}
	switch {
	case out.Well:
		w.trial.why = "in a view of the project, with nothing changed, the service is well: what is wrong is not in its files"
	case !alike(ev, out):
		w.trial.why = "in a view of the project the service fails in another way, so nothing can be proved there " +
			"(healer.pass and healer.show name what it needs besides the project): " + out.Why
		if cause := causeIn(out.Log); cause != "" {
			w.trial.why += ": " + cause
		}
	}
	return w.trial, nil
}

// changing is what differs from run to run in a line that names an error.
var changing = lazyregexp.New(`0x[0-9a-fA-F]+|[0-9]+`)

// alike reports whether a service has failed in a view as it has outside. One that was ended since it
// did not answer has no end of its own.
func alike(ev playbook.Evidence, out view.Outcome) bool {
	if ev.Signal != "exit" && ev.Signal != "flap" || ev.Exit == nil {
		return true
	}
	if out.Exit != nil && ev.Exit.ShellStatus() == out.Exit.ShellStatus() {
		return true
	}
	plain := func(log string) string { return changing.ReplaceAllString(causeIn(log), "N") }
	return plain(ev.Log) == plain(out.Log)
}

// prove runs the service in a view on what an attempt has changed.
func (w *worker) prove(ctx context.Context, v *view.View, s *view.Set, held bool) (view.Outcome, error) {
	look := view.Look{Env: w.order.Rules.Env, Start: restartTime, Verify: w.order.Healer.Verify}
	if held {
		hold, err := w.hold(ctx)
		if err != nil {
			return view.Outcome{}, err
		}
		look.Start, look.Hold = startWithin(w.order.Rules), hold
	}
	return v.Run(ctx, s, look)
}

// diffOf is what a set changes, for people and for models.
func (w *worker) diffOf(ctx context.Context, s *view.Set) string {
	var b strings.Builder
	for _, c := range s.Changes() {
		if dirChange(c) {
			continue
		}
		old, size, err := w.project.ReadFile(ctx, c.Path, 0, project.MaxReviewed)
		if size > int64(len(old)) {
			old = []byte{0} // it is too large to be shown
		}
		b.WriteString(checkpoint.FileDiff(c.Path, old, c.Data, err == nil, c.Kind != view.Gone))
		if c.Mode&0o111 != 0 {
			fmt.Fprintf(&b, "%s: with mode %o\n", c.Path, c.Mode)
		}
	}
	for _, one := range s.Env {
		fmt.Fprintf(&b, "%s: %s is set\n", one.File, one.Name)
	}
	return b.String()
}

// keepDiff writes down what an attempt has changed that comes to nothing, and returns it.
func (w *worker) keepDiff(try int, diff string) string {
	diff = project.Clipped(w.redact.Text(diff))
	_ = atomicfile.File(w.order.Path(healer.TakenBackFile(try)), []byte(diff), 0o600) // for people, and the next attempt
	return diff
}
