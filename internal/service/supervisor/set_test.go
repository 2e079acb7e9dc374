package supervisor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// play is a set whose effects are answered at once, and written down.
type play struct {
	t   *testing.T
	set *Set
	now time.Duration
	log []string
}

func declared(t *testing.T, services string) *config.Config {
	t.Helper()
	return proctest.Value(config.Parse("x", []byte("services:\n"+services)))(t)
}

func (p *play) take(todo []Do) {
	for _, d := range todo {
		ev := Event{At: Time(p.now) + 1, Run: d.Run}
		switch d.Kind {
		case Launch:
			p.log = append(p.log, "start "+d.Service)
			ev.Kind = Launched
		case Signal:
			p.log = append(p.log, "end "+d.Service)
			ev.Kind, ev.Exit, ev.Gone = Exited, &process.Exit{}, true
		case Ask:
			ev.Kind, ev.Role, ev.Seq, ev.OK = Probed, d.Role, d.Seq, true
		case Kill:
			ev.Kind = TreeGone
		default:
			continue
		}
		p.take(p.set.Step(d.Service, ev))
	}
}

// want settles, and compares what was started and ended since.
func (p *play) want(want string) {
	p.t.Helper()
	for range 20 {
		p.now += 100 * time.Millisecond
		p.take(p.set.Tick(Time(p.now)+1, 0.5))
	}
	if got := strings.Join(p.log, ", "); got != want {
		p.t.Errorf("got %q; want %q", got, want)
	}
	p.log = nil
}

func (p *play) up(names ...string) {
	p.t.Helper()
	p.take(proctest.Value(p.set.Up(names, Time(p.now)+1, 0.5))(p.t))
}

func (p *play) down(names ...string) {
	p.t.Helper()
	p.take(proctest.Value(p.set.Down(names, Time(p.now)+1, 0.5))(p.t))
}

func (p *play) event(name string, ev Event) {
	s, _ := p.set.State(name)
	ev.At, ev.Run = Time(p.now)+1, s.Run
	p.take(p.set.Step(name, ev))
}

const chain = `
  a: {command: x, health: {tcp: 80}}
  b: {command: x, depends_on: [a]}
  c: {command: x, depends_on: {b: {restart: true}}}
  job: {command: x, restart: never, depends_on: [a]}
  d: {command: x, depends_on: {job: completed}}
  spare: {command: x, disabled: true}
`

func TestServicesStartAfterWhatTheyNeedAndEndBeforeIt(t *testing.T) {
	p := &play{t: t, set: NewSet(declared(t, chain), nil)}
	p.up()
	p.want("start a, start b, start c, start job")
	if s, _ := p.set.State("d"); s.Phase != Waiting || s.Unmet != "job to complete" {
		t.Errorf("d is %v and needs %q", s.Phase, s.Unmet)
	}
	p.event("job", Event{Kind: Exited, Exit: &process.Exit{}, Gone: true})
	p.want("start d")
	p.down()
	p.want("end d, end c, end b, end a")
	p.up("c")
	p.want("start a, start b, start c")
	p.down("b")
	p.want("end c, end b")
	p.up("spare")
	p.want("start spare")
	p.down()
	p.want("end spare, end a")
	if _, err := p.set.Up([]string{"e"}, 1, 0); err == nil || !strings.Contains(err.Error(), `no service "e"`) {
		t.Errorf("got %v", err)
	}
}

// That of a job before says nothing of the one after.
func TestACompletionCountsForOneRunAlone(t *testing.T) {
	p := &play{t: t, set: NewSet(declared(t, chain), nil)}
	p.up("d")
	p.want("start a, start job")
	p.event("job", Event{Kind: Exited, Exit: &process.Exit{}, Gone: true})
	p.want("start d")
	p.down()
	p.want("end d, end a")
	p.up("d")
	p.want("start a, start job")
}

func TestAFailureOfAJobIsSaidToThoseThatWait(t *testing.T) {
	p := &play{t: t, set: NewSet(declared(t, chain), nil)}
	p.up("d")
	p.event("job", Event{Kind: Exited, Exit: &process.Exit{Code: 1}, Gone: true})
	p.want("start a, start job")
	p.event("job", Event{Kind: Exited, Exit: &process.Exit{Code: 1}, Gone: true})
	if s, _ := p.set.State("d"); s.Unmet != "job to complete, which is failed" {
		t.Errorf("d needs %q", s.Unmet)
	}
}

func TestARestartReachesThoseThatAskForIt(t *testing.T) {
	p := &play{t: t, set: NewSet(declared(t, chain), nil)}
	p.up("c")
	p.want("start a, start b, start c")
	p.take(proctest.Value(p.set.Restart([]string{"a"}, Time(p.now)+1, 0))(t))
	p.want("end a, start a")
	p.event("b", Event{Kind: Exited, Exit: &process.Exit{Signal: 9}, Gone: true})
	p.want("start b, end c, start c")
}

func TestAChangeIsAppliedByDifference(t *testing.T) {
	p := &play{t: t, set: NewSet(declared(t, chain), nil)}
	p.up("c")
	p.want("start a, start b, start c")
	apply := func(services string) {
		t.Helper()
		p.take(p.set.Apply(declared(t, services), Time(p.now)+1, 0.5))
	}
	apply(chain)
	p.want("")
	apply(strings.Replace(chain, "a: {command: x, health: {tcp: 80}}", "a: {command: x, health: {tcp: 81, interval: 5s}, restart: never}", 1))
	p.want("")
	if got := p.set.Rules("a").Restart.Policy; got != "never" {
		t.Errorf("the new policy is not there: %s", got)
	}
	apply(strings.Replace(chain, "b: {command: x,", "b: {command: x, env: {A: 1},", 1))
	p.want("end b, start b, end c, start c")
	apply("\n  a: {command: x}\n  new: {command: x, depends_on: [a]}\n")
	p.want("end c, end b")
	if got := fmt.Sprint(p.set.Names()); got != "[a new]" {
		t.Errorf("the services are %s", got)
	}
	p.up()
	p.want("start new")
}

// The end of a service that waits for the end of others is stored with it: whoever goes
// on after a death ends it, too.
func TestAnEndThatWasAskedForOutlivesADeath(t *testing.T) {
	for what, ask := range map[string]func(*Set){
		"down":      func(s *Set) { _, _ = s.Down([]string{"a"}, 1, 0.5) },
		"left out":  func(s *Set) { s.Apply(declared(t, "\n  new: {command: x}\n"), 1, 0.5) },
		"and again": func(s *Set) { _, _ = s.Down(nil, 1, 0.5); _, _ = s.Down(nil, 2, 0.5) },
	} {
		p := &play{t: t, set: NewSet(declared(t, chain), nil)}
		p.up("c")
		p.want("start a, start b, start c")
		ask(p.set) // and nothing of it is done
		states, left := map[string]State{}, &config.Config{Services: map[string]*config.Service{}}
		for _, name := range p.set.Names() {
			state, _ := p.set.State(name)
			var back State
			proctest.Must(t, json.Unmarshal(proctest.Value(json.Marshal(state))(t), &back))
			states[name], left.Services[name] = back, p.set.Rules(name)
		}
		p.set = NewSet(left, states)
		for _, name := range p.set.Names() {
			p.event(name, Event{Kind: Found, Alive: states[name].Phase.Alive()})
		}
		want := "end c, end b, end a"
		if what == "left out" { // what they need is not declared any more
			slices.Sort(p.log)
			want = "end a, end b, end c"
		}
		p.want(want)
		for _, name := range p.set.Names() {
			if s, _ := p.set.State(name); s.Up || s.Phase != Idle {
				t.Errorf("%s: %s is %v", what, name, s.Phase)
			}
		}
		if p.set.Rules("a") != nil != (what != "left out") {
			t.Errorf("%s: the services are %v", what, p.set.Names())
		}
	}
}
