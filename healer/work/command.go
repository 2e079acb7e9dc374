package work

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/tend-run/tend/healer/agent"
	"github.com/tend-run/tend/healer/confine"
	"github.com/tend-run/tend/healer/guard"
	"github.com/tend-run/tend/healer/project"
)

// Exec runs a command of a model, which changes nothing by itself. What it has changed in its
// own view of the project is then taken over file by file, by [project.Project].
func (h *hands) Exec(ctx context.Context, line string) (out agent.Exec, err error) {
	w := h.w
	c, err := w.project.Begin(ctx, line)
	if err != nil {
		return out, err
	}
	env := w.bareEnviron()
	maps.Copy(env, c.Env)
	res, err := w.run(ctx, command{argv: c.Argv, dir: w.project.Root(), env: env, time: commandTime, bare: true})
	if err != nil {
		return out, err
	}
	out = agent.Exec{Output: res.output, TimedOut: res.timedOut}
	if res.exit != nil {
		if out.Code = res.exit.Code; res.exit.Signal != 0 {
			out.Signal = fmt.Sprint("signal ", res.exit.Signal)
		}
	}
	if out.Code == confine.Refused && strings.Contains(res.output, "tend: the command was not run") {
		return agent.Exec{}, fmt.Errorf("%w (%s)", project.ErrNoCommands, strings.TrimSpace(res.output))
	}
	taken, err := w.project.End(ctx)
	if err != nil {
		return out, err
	}
	if taken.Changed {
		h.touched = true
	}
	out.Output += taken.Said
	return out, nil
}

// bareEnviron is the environment of a model's command: that of the service without secrets.
func (w *worker) bareEnviron() map[string]string {
	env := w.environ()
	env["PATH"] = w.commandPath()
	maps.DeleteFunc(env, guard.Secret)
	return env
}
