package run

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mrand "math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// Config of a Supervisor. Manager and Dir are needed.
type Config struct {
	// Manager of the machine's processes.
	Manager process.Manager
	// Dir keeps a file for each service. It is made if it is missing.
	Dir string
	// Program is tend as it is started, with its first arguments: for services that have
	// sockets. Empty: they are refused.
	Program []string
	// Roles returns the pids of tend's own roles, which no service may adopt. nil: none is
	// known but this program.
	Roles func() []int
	// Moving returns nil if the output of processes is being moved to where it is read.
	// nil: it always is.
	Moving func(context.Context) error
	// Notice receives the notices of services, in order. It must not block. nil: nothing.
	Notice func(service string, e supervisor.Effect)
	// Driver of the sandboxes in which services run. nil: there are none.
	Driver driver.Driver
	Log    *slog.Logger // nil: nothing is logged
	// InShutdown reports whether all of tend was being ended at a time. What ends then
	// by a code of its own has ended for that. nil: it never is.
	InShutdown func(time.Time) bool
}

// Supervisor keeps services running while Run does.
type Supervisor struct {
	c     Config
	store store
	boot  string
	// origin is the clock at begin, which time.Since continues from.
	origin supervisor.Time
	begin  time.Time

	calls  chan func() // carried out by the loop
	ended  chan struct{}
	starts chan struct{} // one value for each start under way; see admit

	// The rest belongs to the loop. alive is the context of Run.
	alive   context.Context
	last    supervisor.Time // what now returned
	set     *supervisor.Set
	records map[string]*record
	unsaved bool // a record is not on the disk as it is here
	workers map[string]*worker
	wg      sync.WaitGroup
	changed chan struct{} // closed at each change; see Wait
	version uint64        // of all states: grows at each change

	// before are the newest runs of services that began before this supervisor.
	before map[string]int64
}

// saveAgain is how soon it is tried again to store what could not be: on a full disk, say.
const saveAgain = time.Second

// ErrEnded is returned for calls to a supervisor that does not run any more.
var ErrEnded = errors.New("the supervisor has ended")

// Open reads the stored state. Nothing happens until Run.
func Open(c Config) (*Supervisor, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Supervisor{
		c: c, store: store{c.Dir}, boot: procfs.BootID(), origin: supervisor.Time(procfs.BootTime()), begin: time.Now(),
		calls: make(chan func()), ended: make(chan struct{}), starts: make(chan struct{}, mostStarts), workers: map[string]*worker{},
		changed: make(chan struct{}), version: 1,
		before: map[string]int64{},
	}
	records, err := s.store.load()
	if err != nil {
		return nil, err
	}
	s.records = records
	declared := &config.Config{Services: map[string]*config.Service{}}
	states := map[string]supervisor.State{}
	for name, r := range records {
		declared.Services[name], states[name] = r.Rules, r.State
		if r.State.Foreign {
			c.Log.Error("a service is left as it is", "service", name, "why", r.State.Why)
			continue
		}
		if p := r.State.Phase; p == supervisor.Completed || r.Boot == s.boot && (p == supervisor.Running || p == supervisor.Failed) {
			s.before[name] = r.State.Run
		}
		if r.Boot != s.boot {
			states[name] = r.State.Rebase(s.now())
		}
	}
	s.set = supervisor.NewSet(declared, states)
	return s, nil
}

// now is the supervisor's clock. It never says the same twice.
func (s *Supervisor) now() supervisor.Time {
	s.last = max(s.last+1, s.origin.Add(time.Since(s.begin)))
	return s.last
}

// Run continues from the stored state, and works until ctx ends. Services keep running
// after that.
func (s *Supervisor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		close(s.ended)
		s.wg.Wait()
	}()
	s.alive = ctx
	for _, name := range s.set.Names() {
		if state, _ := s.set.State(name); !state.Foreign {
			s.work(name).goOn(s.order(name))
		}
	}
	s.wg.Go(s.findHolders)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-s.calls:
			f()
		case <-timer.C:
			s.carryOut(s.set.Tick(s.now(), mrand.Float64()))
		}
		for _, name := range s.set.Names() { // new ones, and new times
			rules := s.set.Rules(name)
			state, _ := s.set.State(name)
			if state.Foreign {
				continue
			}
			s.work(name).keepTimes(rules.Schedule)
			s.work(name).keepWatch(rules, s.order(name).token, state.Up)
			s.work(name).keepLog(rules, s.order(name).token, state.Run)
			s.work(name).keepPlace(rules.Sandbox, state.Up && state.Phase != supervisor.Completed, state.Phase.Alive())
			s.keepHolder(name, rules)
		}
		wait := time.Duration(1<<62 - 1)
		if d := s.set.Deadline(); d != 0 {
			wait = max(0, d.Sub(s.now()))
		}
		if s.unsaved {
			wait = min(wait, saveAgain)
		}
		timer.Reset(wait)
	}
}

// in has the loop carry out f.
func (s *Supervisor) in(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case s.calls <- func() { f(); close(done) }:
	case <-s.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// tell gives an event to a service, if the supervisor runs still.
func (s *Supervisor) tell(ctx context.Context, name string, ev supervisor.Event) {
	_ = s.in(ctx, func() { // else the next one finds out by itself
		ev.At, ev.Random = s.now(), mrand.Float64()
		s.carryOut(s.set.Step(name, ev))
	})
}

// carryOut stores what was decided, and then has it done.
func (s *Supervisor) carryOut(todo []supervisor.Do) {
	s.keep()
	for _, d := range todo {
		if d.Kind == supervisor.Report {
			s.c.Log.Info("service "+d.Notice.String(), "service", d.Service, "run", d.Run, "why", d.Text)
			if s.c.Notice != nil {
				s.c.Notice(d.Service, d.Effect)
			}
			continue
		}
		s.work(d.Service).put(d.Effect, s.order(d.Service))
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.version++
}

// keep stores the records that have changed.
func (s *Supervisor) keep() {
	s.unsaved = false
	there := map[string]bool{}
	for _, name := range s.set.Names() {
		there[name] = true
		state, _ := s.set.State(name)
		if state.Foreign {
			continue
		}
		r, rules := s.records[name], s.set.Rules(name)
		if r == nil {
			r = &record{Token: strings.ToLower(rand.Text()[:16])}
			s.records[name] = r
		}
		stepped := r.seen != state.Last || r.State.Ending != state.Ending || r.State.Leaving != state.Leaving
		r.seen = state.Last
		if !r.unsaved && r.Rules == rules && r.Boot == s.boot && (!stepped || reflect.DeepEqual(lasting(r.State), lasting(state))) {
			continue
		}
		r.Rules, r.State, r.Boot = rules, state, s.boot
		err := s.store.save(name, r)
		if err != nil && !r.unsaved {
			s.c.Log.Error("a service could not be stored", "service", name, "err", err, "again", saveAgain)
		}
		r.unsaved = err != nil
		s.unsaved = s.unsaved || r.unsaved
	}
	for name := range s.records {
		if !there[name] {
			token := s.records[name].Token
			delete(s.records, name)
			if w := s.workers[name]; w != nil {
				if w.held {
					s.wg.Go(func() { s.release(token, name) })
				}
				w.end()
				delete(s.workers, name)
			}
			if err := s.store.remove(name); err != nil {
				s.c.Log.Error("a service could not be forgotten", "service", name, "err", err)
			}
		}
	}
}

// Apply applies a declaration: only changed services are affected. New services wait
// for Up. An unknown sandbox is refused.
func (s *Supervisor) Apply(ctx context.Context, c *config.Config) error {
	for _, name := range c.Names() {
		switch r := c.Services[name]; {
		case r.Sandbox != "":
			if _, err := s.sandbox(ctx, r.Sandbox); err != nil {
				return s.refusal(name, r.Sandbox, err)
			}
		case len(r.Sockets) > 0 && len(s.c.Program) == 0:
			return &process.InvalidError{Field: "services." + name + ".sockets",
				Reason: "cannot be held: this daemon does not know the program of tend, which does it"}
		}
		if err := s.checkWatch(ctx, name, c.Services[name]); err != nil {
			return err
		}
	}
	return s.in(ctx, func() {
		s.carryOut(s.set.Apply(c, s.now(), mrand.Float64()))
		for _, name := range s.set.Names() {
			s.work(name).rewatch(s.order(name))
		}
	})
}

// Up starts services and their dependencies; no names: all that are not disabled.
func (s *Supervisor) Up(ctx context.Context, names ...string) error {
	s.lookNow(ctx)
	return s.wish(ctx, s.set.Up, names)
}

// Down ends services and what needs them; no names: all.
func (s *Supervisor) Down(ctx context.Context, names ...string) error {
	return s.wish(ctx, s.set.Down, names)
}

// Restart restarts services by name.
func (s *Supervisor) Restart(ctx context.Context, names ...string) error {
	s.lookNow(ctx)
	return s.wish(ctx, s.set.Restart, names)
}

func (s *Supervisor) wish(ctx context.Context, what func([]string, supervisor.Time, float64) ([]supervisor.Do, error),
	names []string) (err error) {
	ierr := s.in(ctx, func() {
		var todo []supervisor.Do
		if todo, err = what(names, s.now(), mrand.Float64()); err == nil {
			s.carryOut(todo)
		}
	})
	return errors.Join(err, ierr)
}

// Status is a service as it is at a moment.
type Status struct {
	Name  string
	State supervisor.State
	Rules *config.Service
	// ID of the newest run; "" if there was none, or tend did not start it.
	ID process.ID
	// Age is how long it has been in its phase.
	Age time.Duration
	// Next is how long until something happens by itself; 0: nothing is planned.
	Next time.Duration
}

// List returns all services, each after those that it depends on.
func (s *Supervisor) List(ctx context.Context) (all []Status, err error) {
	err = s.in(ctx, func() { all = s.list() })
	return all, err
}

func (s *Supervisor) list() (all []Status) {
	for _, name := range s.set.Names() {
		state, _ := s.set.State(name)
		one := Status{Name: name, State: state, Rules: s.set.Rules(name)}
		if state.Since != 0 {
			one.Age = max(0, s.now().Sub(state.Since))
		}
		if r := s.records[name]; r != nil && state.Run > 0 && state.Adopted == nil {
			one.ID = idOf(r.Token, state.Run)
		}
		if state.Until != 0 {
			one.Next = max(1, state.Until.Sub(s.now()))
		}
		all = append(all, one)
	}
	return all
}

// Touch wakes the callers that wait for a change, for a change outside of the
// supervisor.
func (s *Supervisor) Touch(ctx context.Context) {
	_ = s.in(ctx, func() { // else nobody waits any more
		close(s.changed)
		s.changed = make(chan struct{})
		s.version++
	})
}

// Wait returns once the services are as ok says. It is asked after each change.
func (s *Supervisor) Wait(ctx context.Context, ok func([]Status) bool) error {
	for {
		var met bool
		var changed chan struct{}
		if err := s.in(ctx, func() { met, changed = ok(s.list()), s.changed }); err != nil || met {
			return err
		}
		select {
		case <-changed:
		case <-s.ended:
			return ErrEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Changes returns all services once something about one of them has happened after a
// version, and the version that they are of. After 0 it returns at once.
func (s *Supervisor) Changes(ctx context.Context, after uint64) (all []Status, version uint64, err error) {
	for {
		var changed chan struct{}
		err := s.in(ctx, func() {
			if changed, version = s.changed, s.version; version != after {
				all = s.list()
			}
		})
		if err != nil || version != after {
			return all, version, err
		}
		select {
		case <-changed:
		case <-s.ended:
			return nil, 0, ErrEnded
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// work returns the worker of a service.
func (s *Supervisor) work(name string) *worker {
	w := s.workers[name]
	if w == nil {
		w = newWorker(s, name)
		s.workers[name] = w
	}
	return w
}

// order is what a worker has to know of its service at a moment.
func (s *Supervisor) order(name string) order {
	o := order{rules: s.set.Rules(name), lines: map[string]config.Pattern{}}
	if r := s.records[name]; r != nil {
		o.token, o.run, o.adopted = r.Token, r.State.Run, r.State.Adopted
	}
	for _, other := range s.set.Names() {
		for _, d := range s.set.Rules(other).DependsOn {
			if d.Service == name && d.Condition == config.LogLine {
				o.lines[other] = config.Pattern(d.Log)
			}
		}
	}
	return o
}
