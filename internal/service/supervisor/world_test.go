package supervisor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// world is a machine on which services run, for one set. It carries out effects in the
// order in which each service gets them, whenever the test lets it.
type world struct {
	t     *rapid.T
	c     *config.Config
	set   *Set
	now   Time
	runs  map[string]map[int64]*run
	queue map[string][]Effect // what is still to be done
	hooks map[string]bool     // what was started, as SERVICE HOOK RUN: it went well
	trace []string
}

type run struct {
	leader bool // alive
	tree   bool // anything of it is
	exit   *process.Exit
	deaf   bool // does not end at a signal
	// adopted: it was there before, and nobody is told how it ends.
	adopted bool
}

func newWorld(t *rapid.T, c *config.Config) *world {
	return &world{t: t, c: c, set: NewSet(c, nil), now: 1, runs: map[string]map[int64]*run{}, queue: map[string][]Effect{}, hooks: map[string]bool{}}
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(w.trace[max(0, len(w.trace)-60):], "\n"))
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%v ", time.Duration(w.now).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// take queues effects. Each launch has to be allowed.
func (w *world) take(todo []Do) {
	for _, d := range todo {
		if d.Kind == Report {
			continue
		}
		w.note("  %s: effect %d of run %d", d.Service, d.Kind, d.Run)
		w.queue[d.Service] = append(w.queue[d.Service], d.Effect)
	}
}

func (w *world) step(name string, ev Event) {
	ev.At, ev.Random = w.now, 0.9
	before, _ := w.set.State(name)
	w.note("%s: %v of run %d (it is %v, up %v)", name, ev.Kind, ev.Run, before.Phase, before.Up)
	w.take(w.set.Step(name, ev))
}

// carry does the next thing that a service's queue holds.
func (w *world) carry(name string) {
	if len(w.queue[name]) == 0 {
		return
	}
	e := w.queue[name][0]
	w.queue[name] = w.queue[name][1:]
	runs := w.runs[name]
	if runs == nil {
		runs = map[int64]*run{}
		w.runs[name] = runs
	}
	p := runs[e.Run]
	switch e.Kind {
	case Launch:
		for n, other := range runs {
			if other.tree && n != e.Run {
				w.fatalf("%s: run %d is launched while run %d lives", name, e.Run, n)
			}
		}
		if HookOf(w.c.Services[name], PreStart) != nil && !w.hooks[hookKey(name, PreStart, e.Run)] {
			w.fatalf("%s: run %d is launched, and pre_start has not gone well", name, e.Run)
		}
		if _, ran := w.hooks[hookKey(name, PostStop, e.Run-1)]; !ran && e.Run > 1 && HookOf(w.c.Services[name], PostStop) != nil {
			w.fatalf("%s: run %d is launched, and post_stop of the one before was never started", name, e.Run)
		}
		if p == nil {
			switch rapid.IntRange(0, 9).Draw(w.t, "launch") {
			case 0:
				w.step(name, Event{Kind: NotLaunched, Run: e.Run, Text: "no such file"})
				return
			case 1:
				w.step(name, Event{Kind: Unknown, Run: e.Run})
				return
			}
			p = &run{leader: true, tree: true, deaf: rapid.IntRange(0, 4).Draw(w.t, "deaf") == 0}
			runs[e.Run] = p
			if rapid.IntRange(0, 9).Draw(w.t, "answer lost") == 0 {
				w.step(name, Event{Kind: Unknown, Run: e.Run})
				return
			}
		}
		if p.leader {
			w.step(name, Event{Kind: Launched, Run: e.Run})
		} else {
			w.step(name, Event{Kind: Exited, Run: e.Run, Exit: p.exit, Gone: !p.tree})
		}
	case Adopt:
		for n, other := range runs {
			if other.tree {
				w.fatalf("%s: run %d is looked for while run %d lives", name, e.Run, n)
			}
		}
		switch rapid.IntRange(0, 5).Draw(w.t, "adopt") {
		case 0:
			w.step(name, Event{Kind: NotLaunched, Run: e.Run, Text: "another user's"})
		case 1:
			w.step(name, Event{Kind: Unknown, Run: e.Run})
		case 2:
			w.step(name, Event{Kind: Absent, Run: e.Run})
		default:
			if s, _ := w.set.State(name); s.Phase == Starting && s.Run == e.Run { // else the answer comes too late
				runs[e.Run] = &run{leader: true, tree: true, adopted: true, deaf: rapid.IntRange(0, 4).Draw(w.t, "deaf") == 0}
			}
			w.step(name, Event{Kind: Launched, Run: e.Run, Adopted: &Adopted{PID: 100, Start: e.Run}})
		}
	case Signal:
		if p != nil && p.tree && !p.deaf {
			w.end(name, e.Run, &process.Exit{Signal: e.Number, Code: -1, Cause: process.CauseKilled}, true)
		}
	case Kill:
		if p != nil && p.tree {
			w.end(name, e.Run, &process.Exit{Signal: 9, Code: -1, Cause: process.CauseKilled}, true)
		}
		w.step(name, Event{Kind: TreeGone, Run: e.Run})
	case RunHook:
		key := hookKey(name, e.Hook, e.Run)
		ok, ran := w.hooks[key]
		if !ran {
			ok = rapid.IntRange(0, 5).Draw(w.t, "hook") > 0
			w.hooks[key] = ok
		}
		if rapid.IntRange(0, 9).Draw(w.t, "hook hangs") > 0 || e.Hook == PreStart {
			w.step(name, Event{Kind: HookDone, Run: e.Run, Hook: e.Hook, OK: ok, Text: "no"})
		}
	case Ask:
		if p != nil && p.tree {
			ok := rapid.IntRange(0, 5).Draw(w.t, "well") > 0
			w.step(name, Event{Kind: Probed, Run: e.Run, Role: e.Role, Seq: e.Seq, OK: ok, Text: "deaf"})
		}
	}
}

func hookKey(name string, h Hook, n int64) string { return fmt.Sprintf("%s %v %d", name, h, n) }

// end ends the leader of a run, or its whole tree.
func (w *world) end(name string, n int64, e *process.Exit, all bool) {
	p := w.runs[name][n]
	had := p.leader
	if had {
		if p.adopted {
			e = &process.Exit{Code: -1, Cause: process.CauseLost}
		}
		p.leader, p.exit = false, e
	}
	if all {
		p.tree = false
	}
	if had {
		w.step(name, Event{Kind: Exited, Run: n, Exit: p.exit, Gone: all})
	} else if all {
		w.step(name, Event{Kind: TreeGone, Run: n})
	}
}

// place has the sandbox of boxed be there, or not.
func (w *world) place(away string) { w.step("boxed", Event{Kind: Placed, OK: away == "", Text: away}) }

// crash is the death of whoever carries out effects: what was to be done is not done,
// and another continues from what was stored.
func (w *world) crash() {
	w.note("crash")
	states := map[string]State{}
	for _, name := range w.set.Names() {
		s, _ := w.set.State(name)
		b, err := json.Marshal(s)
		if err == nil {
			var back State
			err = json.Unmarshal(b, &back)
			states[name] = back
		}
		if err != nil {
			w.fatalf("%v", err)
		}
	}
	w.queue = map[string][]Effect{}
	w.set = NewSet(w.c, states)
	for _, name := range w.set.Names() {
		s, _ := w.set.State(name)
		ev := Event{Kind: Found, Run: s.Run}
		if p := w.runs[name][s.Run]; p != nil {
			ev.Alive, ev.Exit, ev.Gone = p.leader, p.exit, !p.tree
		}
		w.step(name, ev)
	}
}

// settle lets everything happen that is to happen, for at most d.
func (w *world) settle(d time.Duration) {
	end := w.now.Add(d)
	for range 20_000 {
		busy := false
		for _, name := range w.set.Names() {
			for len(w.queue[name]) > 0 {
				busy = true
				w.carry(name)
			}
		}
		if busy {
			continue
		}
		next := w.set.Deadline()
		if next == 0 || next > end {
			return
		}
		w.now = max(w.now, next)
		w.take(w.set.Tick(w.now, 0.5))
	}
	w.fatalf("there is no end to what happens")
}

func (w *world) alive(name string) bool {
	for _, p := range w.runs[name] {
		if p.tree {
			return true
		}
	}
	return false
}

const worldFile = `
services:
  db: {command: x, health: {tcp: 80}, stop: {timeout: 2s}}
  job: {command: x, depends_on: [db], restart: {policy: on-failure, max: 3, within: 1m, retry: 2m}}
  cache: {command: x, hooks: {pre_start: a, post_stop: b}, pressure: {restart: true}, restart: {max: 2, within: 30s, delay: 0, retry: 1m}}
  web: {command: x, hooks: {pre_start: a, post_start: b, pre_stop: c, post_stop: d}, depends_on: {db: {restart: true}, job: completed, cache: started}, readiness: {tcp: 80}, liveness: {tcp: 80}, restart: {max: 3, retry: 1m}}
  boxed: {command: x, sandbox: s, depends_on: {db: {restart: true}}, health: {tcp: 80}, hooks: {pre_start: a, pre_stop: c, post_stop: d}, restart: {max: 3, retry: 1m}}
  old: {command: x, adopt: {port: 80}, depends_on: [db], hooks: {pre_start: a, pre_stop: c, post_stop: d}, health: {tcp: 80}, restart: {max: 3, retry: 1m}}
  edge: {command: x, forks: true, depends_on: {web: {log: up}}, restart: {retry: 3m}}
`

// Whatever happens, in whatever order, what the package comment says always holds.
func TestNoOrderOfEventsBreaksWhatAlwaysHolds(t *testing.T) {
	c := proctest.Value(config.Parse("x", []byte(worldFile)))(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, c)
		name := func() string { return rapid.SampledFrom(c.Names()).Draw(t, "name") }
		actions := map[string]func(*rapid.T){
			"up": func(t *rapid.T) {
				n := name()
				out, err := w.set.Up([]string{n}, w.now, 0.5)
				if err != nil {
					w.fatalf("%v", err)
				}
				w.note("up %s", n)
				w.take(out)
			},
			"up all": func(t *rapid.T) {
				out, _ := w.set.Up(nil, w.now, 0.5)
				w.note("up all")
				w.take(out)
			},
			"down": func(t *rapid.T) {
				n := name()
				out, _ := w.set.Down([]string{n}, w.now, 0.5)
				w.note("down %s", n)
				w.take(out)
			},
			"restart": func(t *rapid.T) {
				n := name()
				out, _ := w.set.Restart([]string{n}, w.now, 0.5)
				w.note("restart %s", n)
				w.take(out)
			},
			"carry": func(t *rapid.T) { w.carry(name()) },
			"carry all": func(t *rapid.T) {
				for _, n := range c.Names() {
					w.carry(n)
				}
			},
			"pass": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond)
				w.take(w.set.Tick(w.now, 0.5))
			},
			"deadline": func(t *rapid.T) {
				if d := w.set.Deadline(); d > w.now {
					w.now = d
				}
				w.take(w.set.Tick(w.now, 0.5))
			},
			"adopt": func(t *rapid.T) {
				s, _ := w.set.State("old")
				out, err := w.set.Adopt("old", Adopted{PID: 200, Start: s.Run}, w.now, 0.5)
				if (err == nil) == s.Phase.Alive() {
					w.fatalf("it is %v, and adopting it says %v", s.Phase, err)
				}
				if err != nil {
					return
				}
				w.note("adopt old")
				if w.runs["old"] == nil {
					w.runs["old"] = map[int64]*run{}
				}
				w.runs["old"][s.Run+1] = &run{leader: true, tree: true, adopted: true}
				w.take(out)
			},
			"freeze": func(t *rapid.T) {
				w.now = w.now.Add(time.Hour)
				w.take(w.set.Tick(w.now, 0.5))
			},
			"exit": func(t *rapid.T) {
				n := name()
				code, all := rapid.IntRange(0, 1).Draw(t, "code"), rapid.Bool().Draw(t, "all")
				for _, r := range slices.Sorted(maps.Keys(w.runs[n])) {
					if w.runs[n][r].leader {
						w.end(n, r, &process.Exit{Code: code}, all)
						return
					}
				}
			},
			"line": func(t *rapid.T) {
				s, _ := w.set.State("web")
				w.step("web", Event{Kind: Line, Run: s.Run, Text: "edge"})
			},
			"odd": func(t *rapid.T) {
				n := name()
				s, _ := w.set.State(n)
				kind := rapid.SampledFrom([]EventKind{Changed, Due, Stuck, Pressure, Starved, Unheld, Ruled, Bounced, Tick}).Draw(t, "kind")
				w.step(n, Event{Kind: kind, Run: s.Run, OK: true})
			},
			"place": func(t *rapid.T) {
				w.place(rapid.SampledFrom([]string{"", "its sandbox is paused", "its sandbox is stopped"}).Draw(t, "away"))
			},
			"late news": func(t *rapid.T) {
				n := name()
				s, _ := w.set.State(n)
				kind := rapid.SampledFrom([]EventKind{Launched, Absent, Exited, TreeGone, NotLaunched, Unknown, Probed, HookDone}).Draw(t, "kind")
				w.step(n, Event{Kind: kind, Run: s.Run - 1, Exit: &process.Exit{}, Gone: true, OK: true, Seq: 1, Hook: PreStart})
			},
			"crash": func(t *rapid.T) { w.crash() },
			"": func(t *rapid.T) {
				for _, n := range c.Names() {
					s, _ := w.set.State(n)
					if s.Away != "" && (s.Ready || s.Phase == Running && s.Deadline() != 0) {
						w.fatalf("%s is away, ready %v, and at %v something happens", n, s.Ready, s.Deadline())
					}
					if s.Ready && s.Phase != Running {
						w.fatalf("%s is ready and %v", n, s.Phase)
					}
					if r := c.Services[n].Restart; len(s.Restarts) > r.Max {
						w.fatalf("%s has been restarted %d times; the bound is %d", n, len(s.Restarts), r.Max)
					}
					if (s.Phase == Stopping || s.Phase == Killing || s.Phase == Pausing) && s.Deadline() == 0 {
						w.fatalf("%s is %v without a deadline", n, s.Phase)
					}
					if !s.Up && (s.Phase == Starting || s.Phase == Running || s.Phase == Waiting || s.Phase == Pausing || s.Phase == Failed) {
						w.fatalf("%s is %v, and nobody wants it", n, s.Phase)
					}
					if p := w.runs[n][s.Run]; s.Phase.Alive() && p != nil && p.tree && p.adopted != (s.Adopted != nil) {
						w.fatalf("%s: that run %d was adopted is %v, and it is said to be %v", n, s.Run, p.adopted, s.Adopted)
					}
					for r, p := range w.runs[n] {
						if p.tree && r != s.Run {
							w.fatalf("%s: run %d lives beside run %d", n, r, s.Run)
						}
						if p.tree && !s.Phase.Alive() {
							w.fatalf("%s is %v, and run %d lives", n, s.Phase, r)
						}
					}
				}
			},
		}
		t.Repeat(actions)

		// Down ends everything, whatever was before.
		out, err := w.set.Down(nil, w.now, 0.5)
		if err != nil {
			w.fatalf("%v", err)
		}
		w.note("down all")
		w.take(out)
		if rapid.Bool().Draw(t, "a death then") {
			w.crash()
		}
		w.settle(time.Hour)
		for _, n := range c.Names() {
			if s, _ := w.set.State(n); s.Phase != Idle || w.alive(n) {
				w.fatalf("after down %s is %v (%s), alive: %v", n, s.Phase, s.Why, w.alive(n))
			}
		}
	})
}

// Whatever has happened, services run again when nothing goes wrong any more.
func TestWhatIsWantedRunsInTheEnd(t *testing.T) {
	c := proctest.Value(config.Parse("x", []byte(worldFile)))(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, c)
		up := func() {
			out, err := w.set.Up(nil, w.now, 0.5)
			if err != nil {
				w.fatalf("%v", err)
			}
			w.take(out)
		}
		up()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				w.carry(rapid.SampledFrom(c.Names()).Draw(t, "name"))
			case 1:
				w.settle(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			case 2:
				w.crash()
			case 3:
				w.place(rapid.SampledFrom([]string{"", "its sandbox is stopped"}).Draw(t, "away"))
			default:
				n := rapid.SampledFrom(c.Names()).Draw(t, "name")
				for r, p := range w.runs[n] {
					if p.leader {
						w.end(n, r, &process.Exit{Code: 1}, true)
					}
				}
			}
		}
		w.place("")
		up()
		// From here on all goes well: the answers are written by hand.
		for range 2000 {
			idle := true
			for _, n := range w.set.Names() {
				if len(w.queue[n]) == 0 {
					continue
				}
				idle = false
				e := w.queue[n][0]
				w.queue[n] = w.queue[n][1:]
				if w.runs[n] == nil {
					w.runs[n] = map[int64]*run{}
				}
				p := w.runs[n][e.Run]
				switch e.Kind {
				case Launch:
					if p == nil {
						w.runs[n][e.Run] = &run{leader: true, tree: true}
					}
					w.step(n, Event{Kind: Launched, Run: e.Run})
					if n == "web" {
						w.step(n, Event{Kind: Line, Run: e.Run, Text: "edge"})
					}
					if n == "job" {
						w.end(n, e.Run, &process.Exit{}, true)
					}
				case Adopt:
					w.step(n, Event{Kind: Absent, Run: e.Run})
				case Ask:
					w.step(n, Event{Kind: Probed, Run: e.Run, Role: e.Role, Seq: e.Seq, OK: true})
				case RunHook:
					w.hooks[hookKey(n, e.Hook, e.Run)] = true
					w.step(n, Event{Kind: HookDone, Run: e.Run, Hook: e.Hook, OK: true})
				default:
					if p != nil && p.tree {
						w.end(n, e.Run, &process.Exit{Signal: 15, Cause: process.CauseKilled}, true)
					}
					if e.Kind == Kill {
						w.step(n, Event{Kind: TreeGone, Run: e.Run})
					}
				}
			}
			if s, _ := w.set.State("web"); s.Phase == Running && !slices.Contains(s.Lines, "edge") {
				w.step("web", Event{Kind: Line, Run: s.Run, Text: "edge"})
			}
			if s, _ := w.set.State("job"); s.Phase == Running && idle {
				w.end("job", s.Run, &process.Exit{}, true)
			}
			if idle {
				done := true
				for _, n := range w.set.Names() {
					s, _ := w.set.State(n)
					done = done && (s.Phase == Running && s.Ready || n == "job" && s.Phase == Completed)
				}
				if done {
					return
				}
				if d := w.set.Deadline(); d > w.now {
					w.now = d
				}
				w.take(w.set.Tick(w.now, 0.5))
			}
		}
		for _, n := range w.set.Names() {
			s, _ := w.set.State(n)
			w.note("%s is %v: %s", n, s.Phase, s.Why)
		}
		w.fatalf("not all services run")
	})
}
