package run

import (
	"context"
	"reflect"

	"github.com/tend-run/tend/internal/service/adopt"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// known notes where the processes of a run are found, while its command is there to tell.
func (w *worker) known(p process.Process, in process.Info, n int64) {
	if w.tree.run != n { // else what is known of it continues being known
		w.tree = runTree{run: n, p: p, leader: in.PID, session: in.Session}
		w.tree.group(w.ctx)
	}
}

// watch tells what becomes of a run.
func (w *worker) watch(p process.Process, in process.Info, n int64, o order) {
	if w.watched == n && w.unwatch != nil {
		return
	}
	if w.unwatch != nil {
		w.unwatch()
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.known(p, in, n)
	target := &probe.Target{Process: p, Leader: in.PID, Session: in.Session, Manager: w.s.c.Manager, Spec: specInPlace(o.rules)}
	was, adopted := p.(*adopt.Process)
	if adopted {
		w.tree.pids, target.Tree = was.PIDs, was.PIDs
	}
	w.watched, w.by, w.unwatch = n, seen(o), cancel
	ends := &kernelEnds{own: o.rules.Limits.Memory > 0 && !adopted}
	if g := w.tree.group(ctx); g != nil { // the count of its group at its beginning
		ends.note(g)
	}
	w.mu.Lock()
	w.run, w.target, w.ends = n, target, ends
	w.mu.Unlock()
	sandbox, forks := o.rules.Sandbox, o.rules.Forks
	w.s.wg.Go(func() { w.awaitEnd(ctx, p, n, sandbox, forks, ends); cancel() })
	if len(o.rules.Sockets) > 0 {
		w.s.wg.Go(func() { w.awaitHolder(ctx, n, o) })
	}
	if r := o.rules.Pressure; r != nil && r.On {
		tree := w.tree
		w.s.wg.Go(func() { w.awaitPressure(ctx, tree, n, o.rules, ends) })
	}
	rule := supervisor.ProbeOf(o.rules, supervisor.Startup)
	if rule != nil && rule.Where() != "" && !rule.Anyone && rule.Start.Std() <= longStart {
		w.s.wg.Go(func() { w.awaitElsewhere(ctx, p, n, rule, target) })
	}
	if adopted { // nothing of what it writes is here
		return
	}
	for _, role := range []supervisor.Role{supervisor.Startup, supervisor.Readiness} {
		if rule := supervisor.ProbeOf(o.rules, role); rule != nil && rule.Log != "" {
			w.s.wg.Go(func() {
				if w.line(ctx, p, rule.Log) {
					w.tell(supervisor.Event{Kind: supervisor.Probed, Run: n, Role: role, OK: true})
				}
			})
		}
	}
	for other, pattern := range o.lines {
		w.s.wg.Go(func() {
			if w.line(ctx, p, pattern) {
				w.tell(supervisor.Event{Kind: supervisor.Line, Run: n, Text: other})
			}
		})
	}
	if o.rules.Log.Pattern != "" {
		w.s.wg.Go(func() { w.awaitQuiet(ctx, p, n, o.rules) })
	}
}

// seenOf is what of a declaration decides what a run is watched for.
type seenOf struct {
	pressure           *config.Pressure
	log                config.Log
	startup, readiness config.Pattern
	lines              map[string]config.Pattern
}

func seen(o order) seenOf {
	out := seenOf{pressure: o.rules.Pressure, log: o.rules.Log, lines: o.lines}
	if p := supervisor.ProbeOf(o.rules, supervisor.Startup); p != nil {
		out.startup = p.Log
	}
	if p := supervisor.ProbeOf(o.rules, supervisor.Readiness); p != nil {
		out.readiness = p.Log
	}
	return out
}

// rewatch has a run that continues watched as another declaration asks for.
func (w *worker) rewatch(o order) {
	w.push(func() {
		if w.unwatch == nil || reflect.DeepEqual(w.by, seen(o)) {
			return
		}
		p, in, err := w.findRun(w.ctx, w.watched, o)
		if err != nil || in.Exit != nil && in.TreeGone {
			return // its end is told
		}
		w.unwatch()
		w.unwatch = nil
		w.watch(p, in, w.watched, o)
	})
}
