package work

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/process"
)

// Exec runs a command of a model in a view of the project, and so changes nothing by itself. What it
// has changed there comes into the set, file by file; in a chat it becomes the project's.
func (h *hands) Exec(ctx context.Context, line string) (out agent.Exec, err error) {
	w, set := h.w, h.set
	if set == nil {
		set = &view.Set{}
	}
	if h.set == nil {
		if err := w.dropView(ctx); err != nil {
			return out, err
		}
	}
	v, hide, err := w.openView(ctx)
	if no, ok := errors.AsType[*noView](err); ok {
		return out, fmt.Errorf("%w (%v)", project.ErrNoCommands, no.err)
	}
	if err != nil {
		return out, err
	}
	env := w.bareEnviron()
	maps.Copy(env, project.CommandEnv(w.project.Root()))
	ran, changed, err := v.Exec(ctx, set, hide, process.Spec{
		Argv: []string{"/bin/sh", "-c", line}, Env: env, Inherit: process.InheritNone, Timeout: commandTime,
		Labels: map[string]string{labelEpisode: w.order.ID, labelCommand: "1"},
	})
	out = execOf(ran)
	switch {
	case errors.Is(err, process.ErrLimit):
		out.Output += fmt.Sprintf("\n[tend: %v]", err)
		return out, nil
	case err != nil:
		return out, err
	case ran.TimedOut || out.Signal != "":
		out.Output += "\n[tend: nothing of what it has changed was taken over: the command was killed]"
		return out, nil
	}
	said, err := h.take(ctx, set, changed)
	out.Output += said
	return out, err
}

// execOf is what a model is told of how its command has ended.
func execOf(ran view.Ran) agent.Exec {
	out := agent.Exec{Output: ran.Output, TimedOut: ran.TimedOut}
	if ran.Exit != nil {
		if out.Code = ran.Exit.Code; ran.Exit.Signal != 0 {
			out.Signal = fmt.Sprint("signal ", ran.Exit.Signal)
		}
	}
	return out
}

// take has what a command has changed come into a set, which it has begun with.
func (h *hands) take(ctx context.Context, set *view.Set, changed []view.Change) (said string, err error) {
	var news []view.Change
	there := map[string]bool{}
	for _, c := range changed {
		there[c.Path] = true
		if was, ok := set.Of(c.Path); !ok || was.Kind != c.Kind || string(was.Data) != string(c.Data) || c.Mode&0o111 != was.Mode&0o111 {
			news = append(news, c)
		}
	}
	for _, c := range set.Changes() {
		if !there[c.Path] && c.Kind == view.File { // it was new, and the command has removed it
			set.Drop(c.Path)
		}
	}
	admitted, err := h.w.project.Admit(ctx, news)
	if err != nil {
		return "", err
	}
	for _, path := range admitted.Same {
		set.Drop(path)
	}
	for _, c := range admitted.Changes {
		set.Put(c)
	}
	if h.set == nil && len(admitted.Changes) > 0 {
		err = h.w.project.Apply(ctx, admitted.Changes)
	}
	return admitted.Said, err
}

// bareEnviron is the environment of a model's command: that of the service without secrets.
func (w *worker) bareEnviron() map[string]string {
	env := w.environ()
	env["PATH"] = w.commandPath()
	maps.DeleteFunc(env, guard.Secret)
	return env
}
