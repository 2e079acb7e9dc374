package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/service/adopt"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

const (
	// retryAfter is how soon a call is repeated when the keeper could not be reached.
	retryAfter = 50 * time.Millisecond
	// keepRuns is how many finished runs of a service are kept, with their output.
	keepRuns = 5
	// sigCont is SIGCONT of Linux; syscall does not have it everywhere.
	sigCont = 18
	// minute bounds a wait for a time of day, since clocks are set.
	minute = time.Minute
)

// order is a service as it was declared when something was decided.
type order struct {
	rules *config.Service
	token string
	run   int64
	// adopted is the process that the newest run is; nil: tend started it.
	adopted *supervisor.Adopted
	lines   map[string]config.Pattern // lines that dependents wait for
}

// worker carries out the effects of one service.
type worker struct {
	s    *Supervisor
	name string
	ctx  context.Context // of all goroutines of the service
	end  context.CancelFunc

	mu    sync.Mutex
	todo  []func()      // guarded by mu
	ready chan struct{} // receives after todo has grown

	// The current run, for probes: guarded by mu.
	run    int64
	target *probe.Target
	ends   *kernelEnds

	// The worker's goroutine alone.
	watched int64
	tree    runTree
	by      seenOf // what the run is watched for
	unwatch context.CancelFunc
	adopted *adopt.Process // the newest that there was; nil: none

	// The loop's alone.
	times    *config.Schedule
	endTimes context.CancelFunc
	files    *watchedFiles
	endFiles context.CancelFunc
	place    lookedAt
	endPlace context.CancelFunc
	held     bool // there may be a holder of its sockets
	log      *logFile
	endLog   context.CancelFunc
	logEnded chan struct{}

	newest atomic.Int64 // the newest run, for the file of its output

	seat   seat // whether the sandbox is there
	inside insideWatch
}

func newWorker(s *Supervisor, name string) *worker {
	w := &worker{s: s, name: name, ready: make(chan struct{}, 1), inside: newInsideWatch()}
	w.ctx, w.end = context.WithCancel(s.alive)
	s.wg.Go(w.loop)
	return w
}

func (w *worker) loop() {
	for {
		w.mu.Lock()
		todo := w.todo
		w.todo = nil
		w.mu.Unlock()
		for _, f := range todo {
			if w.ctx.Err() == nil {
				f()
			}
		}
		if len(todo) > 0 {
			continue
		}
		select {
		case <-w.ready:
		case <-w.ctx.Done():
			return
		}
	}
}

// push has the worker do something after what it has to do already.
func (w *worker) push(f func()) {
	w.mu.Lock()
	w.todo = append(w.todo, f)
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

func (w *worker) put(e supervisor.Effect, o order) {
	if e.Kind == supervisor.Ask {
		w.s.wg.Go(func() { w.ask(e, o) })
		return
	}
	w.held = w.held || e.Kind == supervisor.Launch && len(o.rules.Sockets) > 0
	w.push(func() {
		switch e.Kind {
		case supervisor.Launch:
			w.launch(e.Run, o)
		case supervisor.Adopt:
			w.adopt(e.Run, o)
		case supervisor.Signal:
			w.signal(e, o)
		case supervisor.Kill:
			w.endHooks(e.Run, o, supervisor.PostStop)
			w.kill(e.Run, o)
		case supervisor.RunHook:
			w.hook(e, o)
		}
	})
}

func (w *worker) tell(ev supervisor.Event) { w.s.tell(w.ctx, w.name, ev) }

// pause waits a moment; false: there is nothing to wait for any more.
func (w *worker) pause(ctx context.Context) bool {
	select {
	case <-time.After(retryAfter):
		return true
	case <-ctx.Done():
		return false
	}
}

// find returns a process and what is known of it. It does not give up while the keeper is away.
func (w *worker) find(ctx context.Context, id process.ID) (process.Process, process.Info, error) {
	for {
		p, err := w.s.c.Manager.Get(ctx, process.Selector{ID: id})
		if err == nil {
			var in process.Info
			if in, err = p.Info(ctx); err == nil {
				return p, in, nil
			}
		}
		if !errors.Is(err, process.ErrUnavailable) || !w.pause(ctx) {
			return nil, process.Info{}, err
		}
	}
}

// findRun is find for a run, which tend may not have started.
func (w *worker) findRun(ctx context.Context, n int64, o order) (process.Process, process.Info, error) {
	if o.adopted == nil || o.run != n {
		return w.find(ctx, idOf(o.token, n))
	}
	if w.adopted == nil || !w.adopted.Is(*o.adopted) {
		w.adopted = adopt.Open(*o.adopted)
	}
	for {
		in, err := w.adopted.Info(ctx)
		if err == nil {
			return w.adopted, in, nil
		}
		if !errors.Is(err, process.ErrUnavailable) || !w.pause(ctx) {
			return nil, process.Info{}, err
		}
	}
}

// goOn finds out what has become of the newest run.
func (w *worker) goOn(o order) {
	w.push(func() {
		w.checkSandbox(w.ctx, o.rules.Sandbox, nil)
		ev := supervisor.Event{Kind: supervisor.Found, Run: o.run}
		p, in, err := w.findRun(w.ctx, o.run, o)
		switch {
		case err == nil:
			ev.Alive, ev.Exit, ev.Gone = in.Exit == nil, w.s.judged(in.Exit), in.TreeGone
		case errors.Is(err, process.ErrNotFound):
		default:
			w.s.c.Log.Error("a service could not be looked for", "service", w.name, "err", err)
			return
		}
		w.tell(ev)
		if err == nil && !(in.Exit != nil && in.TreeGone) {
			w.watch(p, in, o.run, o)
		}
	})
}

// judged is an exit with the cause that it has for a service: the kernel's word does
// not say that all of tend was being ended, and that the service was asked to.
func (s *Supervisor) judged(e *process.Exit) *process.Exit {
	if e == nil || e.Cause != process.CauseExited || s.c.InShutdown == nil || !s.c.InShutdown(e.Time) {
		return e
	}
	by := *e
	by.Cause = process.CauseShutdown
	return &by
}

func (w *worker) launch(n int64, o order) {
	w.endHooks(n-1, o, supervisor.NoHook)
	spec, failed := w.withSockets(specOf(o.rules, o.token, n), o)
	if failed == nil {
		w.awaitWatch(w.ctx, o.rules)
		failed = w.start(w.ctx, o.rules, spec)
	}
	// It may run all the same: of a start whose answer was lost, or of another
	// declaration.
	p, in, err := w.find(w.ctx, idOf(o.token, n))
	switch {
	case err == nil:
		w.known(p, in, n) // before anybody acts on its start: it may end at once
		w.tell(supervisor.Event{Kind: supervisor.Launched, Run: n})
		w.watch(p, in, n, o)
		w.forget(n-keepRuns, o)
	case errors.Is(err, process.ErrNotFound) && failed != nil && !errors.Is(failed, process.ErrUnavailable) && w.ctx.Err() == nil:
		w.tell(supervisor.Event{Kind: supervisor.NotLaunched, Run: n, Text: failed.Error()})
	default:
		w.tell(supervisor.Event{Kind: supervisor.Unknown, Run: n})
	}
}

// forget removes a run of long ago, if it has finished.
func (w *worker) forget(n int64, o order) {
	if n < 1 {
		return
	}
	if p, err := w.s.c.Manager.Get(w.ctx, process.Selector{ID: idOf(o.token, n)}); err == nil {
		_ = p.Remove(w.ctx) // else its TTL does
	}
	w.eachHook(n, o, func(_ supervisor.Hook, p process.Process) { _ = p.Remove(w.ctx) })
}

// signal asks a run to end. A keeper that dies meanwhile may not have passed it on, so
// that it is asked again: twice is better than not at all, which ends in SIGKILL.
func (w *worker) signal(e supervisor.Effect, o order) {
	var err error
	for {
		var p process.Process
		if p, _, err = w.findRun(w.ctx, e.Run, o); err == nil {
			if err = p.Signal(w.ctx, e.Number, process.ScopeTree); err == nil { // what is stopped must wake to end
				err = p.Signal(w.ctx, sigCont, process.ScopeTree)
			}
		}
		if !errors.Is(err, process.ErrUnavailable) || !w.pause(w.ctx) {
			break
		}
	}
	if err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrNotFound) && w.ctx.Err() == nil {
		// What does not end by the deadline is killed.
		w.s.c.Log.Warn("a service could not be signalled", "service", w.name, "err", err)
	}
}

func (w *worker) kill(n int64, o order) {
	for {
		p, _, err := w.findRun(w.ctx, n, o)
		if errors.Is(err, process.ErrNotFound) {
			break
		}
		var res process.KillResult
		if err == nil {
			res, err = p.Kill(w.ctx)
		}
		if errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrNotFound) || err == nil && len(res.Survivors) == 0 {
			break
		}
		if err == nil {
			w.s.c.Log.Warn("processes of a service outlive SIGKILL", "service", w.name, "pids", res.Survivors)
			return // it is asked for again
		}
		if !errors.Is(err, process.ErrUnavailable) {
			w.s.c.Log.Warn("a service could not be killed", "service", w.name, "err", err)
			return
		}
		if !w.pause(w.ctx) {
			return
		}
	}
	w.tell(supervisor.Event{Kind: supervisor.TreeGone, Run: n})
}

// line waits for a line of output of a run.
func (w *worker) line(ctx context.Context, p process.Process, pattern config.Pattern) bool {
	for {
		ok, err := probe.Line(ctx, p, pattern)
		if err == nil || !errors.Is(err, process.ErrUnavailable) || !w.pause(ctx) {
			return ok && err == nil
		}
	}
}

// awaitEnd waits for the exit, and, of a service that forks, for the end of its tree.
func (w *worker) awaitEnd(ctx context.Context, p process.Process, n int64, sandbox string, forks bool, ends *kernelEnds) {
	e := w.s.judged(w.until(ctx, p, process.Until{}))
	if e == nil || e.Cause == process.CauseShutdown {
		return // all of tend ends; the next one continues from here
	}
	gone := w.ended(ctx, p, n, sandbox, ends.judge(e))
	if gone || !forks {
		return
	}
	if e := w.until(ctx, p, process.Until{TreeGone: true}); e != nil {
		w.checkSandbox(ctx, sandbox, nil)
		w.tell(supervisor.Event{Kind: supervisor.TreeGone, Run: n})
	}
}

// ended tells the exit of a run, and whether its tree has ended with it.
//
// Deliberately not inlined: of those that wait for an end there is one for each service,
// and the large values here would be on the stack of each.
//
//go:noinline
func (w *worker) ended(ctx context.Context, p process.Process, n int64, sandbox string, e *process.Exit) (gone bool) {
	w.checkSandbox(ctx, sandbox, nil) // it may have ended with it
	in, err := p.Info(ctx)
	gone = err == nil && in.TreeGone
	w.tell(supervisor.Event{Kind: supervisor.Exited, Run: n, Exit: e, Gone: gone})
	return gone
}

// until waits for a condition that comes with the exit or after it; nil: ctx ended.
func (w *worker) until(ctx context.Context, p process.Process, u process.Until) *process.Exit {
	for {
		res, err := p.Wait(ctx, u)
		if err == nil && res.Exit != nil && (u == process.Until{} || res.Met) {
			return res.Exit
		}
		if errors.Is(err, process.ErrNotFound) { // somebody has removed it
			return &process.Exit{Code: -1, Cause: process.CauseLost}
		}
		if !w.pause(ctx) {
			return nil
		}
	}
}

// ask puts a question of a probe.
func (w *worker) ask(e supervisor.Effect, o order) {
	w.mu.Lock()
	run, target, ends := w.run, w.target, w.ends
	w.mu.Unlock()
	rule := supervisor.ProbeOf(o.rules, e.Role)
	if rule == nil {
		return
	}
	ev := supervisor.Event{Kind: supervisor.Probed, Run: e.Run, Role: e.Role, Seq: e.Seq}
	if run != e.Run || target == nil { // it has only just been found
		ev.Doubt, ev.Text = true, "it is not known yet"
	} else {
		a := w.answer(rule, target, o.rules.Sandbox)
		ev.OK, ev.Text = a.OK, a.Text
		if !a.OK && ends.again() { // why it does not answer
			w.tell(supervisor.Event{Kind: supervisor.Starved, Run: e.Run})
		}
		ev.Doubt = a.Doubt || w.s.ending(time.Now()) // what ends with all of tend has not failed
	}
	w.tell(ev)
}

// keepTimes tells when the times of a schedule come.
func (w *worker) keepTimes(times *config.Schedule) {
	if w.times == times || w.times != nil && times != nil && *w.times == *times {
		return
	}
	if w.endTimes != nil {
		w.endTimes()
		w.endTimes = nil
	}
	if w.times = times; times == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.endTimes = cancel
	w.s.wg.Go(func() {
		table := timetable{next: times.Next}
		for {
			now := time.Now()
			come := table.advance(now, now.Sub(w.s.begin))
			switch {
			case !come.IsZero():
				w.tell(supervisor.Event{Kind: supervisor.Due, Text: fmt.Sprint(come)})
			case table.due.IsZero():
				return
			default:
				select {
				case <-time.After(min(table.due.Sub(table.wall), minute)): // the clock may be set meanwhile
				case <-ctx.Done():
					return
				}
			}
		}
	})
}
