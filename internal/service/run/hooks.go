package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// hookEnd bounds how long the end of what a hook has left behind is waited for.
const hookEnd = 5 * time.Second

// hook starts a hook, if it was not started before, and has its end told.
func (w *worker) hook(e supervisor.Effect, o order) {
	if e.Hook == supervisor.PreStart {
		w.endHooks(e.Run-1, o, supervisor.NoHook)
	}
	done := supervisor.Event{Kind: supervisor.HookDone, Run: e.Run, Hook: e.Hook}
	spec := hookSpec(o.rules, o.token, e.Run, e.Hook)
	for {
		failed := w.start(w.ctx, o.rules, spec)
		// It may be there all the same: of a start whose answer was lost, or of a
		// supervisor before this one.
		p, in, err := w.find(w.ctx, spec.ID)
		switch {
		case err == nil:
			w.s.wg.Go(func() { w.awaitHook(p, in.Exit != nil, spec.Timeout, done) })
			return
		case errors.Is(err, process.ErrNotFound) && failed != nil && !errors.Is(failed, process.ErrUnavailable) && w.ctx.Err() == nil:
			done.Text = failed.Error()
			w.tell(done)
			return
		}
		if !w.pause(w.ctx) {
			return
		}
	}
}

// awaitHook tells how a hook ends. over: it had ended when it was found.
func (w *worker) awaitHook(p process.Process, over bool, limit time.Duration, done supervisor.Event) {
	e := w.s.judged(w.until(w.ctx, p, process.Until{}))
	if e == nil || e.Cause == process.CauseShutdown && !over {
		return // all of tend ends; the next one continues from here
	}
	ctx, cancel := context.WithTimeout(w.ctx, hookEnd)
	defer cancel()
	if err := w.killHook(ctx, p); err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrNotFound) &&
		w.ctx.Err() == nil {
		w.s.c.Log.Warn("what a hook has left behind could not be killed", "service", w.name, "hook", done.Hook, "err", err)
	}
	if done.OK = e.Cause == process.CauseExited && e.Code == 0 && e.Signal == 0; !done.OK {
		if done.Text = e.String(); e.Cause == process.CauseTimeout {
			done.Text = fmt.Sprintf("it took longer than %v", limit)
		}
		if said := probe.LastLine(ctx, p); said != "" {
			done.Text += fmt.Sprintf(": %.300s", said)
		}
	}
	w.tell(done)
}

// endHooks ends the hooks of a run that still run, but for one.
func (w *worker) endHooks(n int64, o order, but supervisor.Hook) {
	w.eachHook(n, o, func(h supervisor.Hook, p process.Process) {
		if h != but {
			_ = w.killHook(w.ctx, p) // what cannot be killed ends by its timeout
		}
	})
}

// killHook kills what there is of a hook. A keeper that is being replaced meanwhile has
// not done it, and the next one is asked.
func (w *worker) killHook(ctx context.Context, p process.Process) error {
	for {
		if _, err := p.Kill(ctx); !errors.Is(err, process.ErrUnavailable) || !w.pause(ctx) {
			return err
		}
	}
}

// eachHook calls f for the processes of a run's hooks that there are, also of those that
// the declaration does not have any more.
func (w *worker) eachHook(n int64, o order, f func(supervisor.Hook, process.Process)) {
	for _, h := range supervisor.Hooks() {
		if p, _, err := w.find(w.ctx, hookID(o.token, n, h)); err == nil {
			f(h, p)
		}
	}
}
