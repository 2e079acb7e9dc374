package work

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/confine"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/sdk/go"
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
	maps.Copy(env, project.CommandEnv(w.project.Root()))
	how := command{argv: c.Argv, dir: w.project.Root(), env: env, time: commandTime, bare: true}
	inside := w.sandbox != nil && c.Rules != nil
	if inside {
		if how, err = w.fromMachine(ctx, how, *c.Rules, line); err != nil {
			return out, err
		}
		defer os.Remove(w.changes())
	}
	res, err := w.run(ctx, how)
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
	var changes []byte
	if inside {
		if changes, err = confine.Encoded(w.changes()); err != nil {
			return out, err
		}
	}
	taken, err := w.project.End(ctx, changes)
	if err != nil {
		return out, err
	}
	if taken.Changed {
		h.touched = true
	}
	out.Output += taken.Said
	return out, nil
}

// fromMachine is a command in a sandbox, as the machine starts it: in there nobody could
// confine it. The rules are the sandbox's, and say what there is of it, but not who the
// command runs as: that is the user of the process there, as it was started.
func (w *worker) fromMachine(ctx context.Context, c command, rules confine.Rules, line string) (command, error) {
	id, err := w.sandbox.ID(ctx)
	if err != nil {
		return c, err
	}
	in, err := w.sandbox.Info(ctx)
	if err != nil {
		return c, err
	}
	c.memory, c.tasks = boundsBeside(in.Size)
	c.cpus = in.Size.CPUs // and what is around it has none of its own: it only waits longer
	rules.Changes = w.changes()
	at := confine.Sandbox{StateDir: w.order.StateDir, Scratch: w.order.Path("shadow"), ID: id, User: w.inside}
	c.argv = confine.ArgvInside(w.self, at, rules, project.CommandLine(line))
	c.dir, c.machine = "/", true
	return c, nil
}

// What the processes of tend around a command in a sandbox may take beside it: they make what
// it runs in, and collect up to [confine.MaxChangedBytes] of what it has written.
const (
	aroundMemory = 256 << 20
	aroundTasks  = 64
)

// boundsBeside are those of a command beside a sandbox of this size: the sandbox's own, and
// what is around the command, or those of all commands, whichever is lower.
func boundsBeside(size tend.SandboxSize) (memory, tasks int64) {
	memory, tasks = commandMemory, commandPids
	if size.Memory != 0 {
		memory = min(memory, size.Memory+aroundMemory)
	}
	if size.Tasks != 0 {
		tasks = min(tasks, size.Tasks+aroundTasks)
	}
	return memory, tasks
}

// changes is the file for what a command in a sandbox has changed.
func (w *worker) changes() string { return w.order.Path("changes") }

// bareEnviron is the environment of a model's command: that of the service without secrets.
func (w *worker) bareEnviron() map[string]string {
	env := w.environ()
	env["PATH"] = w.commandPath()
	maps.DeleteFunc(env, guard.Secret)
	return env
}
