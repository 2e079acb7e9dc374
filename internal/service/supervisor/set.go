package supervisor

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

// Set is a set of services that depend on each other. Like Step, its methods return the
// effects to carry out, in order. It is not safe for concurrent use.
type Set struct {
	services map[string]*member
	order    []string // each after those that it depends on
}

// member is a service of a set.
type member struct {
	rules *config.Service
	state State
}

// Do is an effect for a service.
type Do struct {
	Service string
	Effect
}

// NewSet returns the services of a file, with their known states.
func NewSet(c *config.Config, states map[string]State) *Set {
	s := &Set{services: map[string]*member{}, order: c.Order()}
	for name, rules := range c.Services {
		s.services[name] = &member{rules: rules, state: states[name]}
	}
	for _, name := range s.order {
		m := s.services[name]
		m.state.Unmet = s.unmet(m.rules)
		m.state.Met = m.state.Unmet == ""
	}
	return s
}

// Names returns the services, each after its dependencies.
func (s *Set) Names() []string { return slices.Clone(s.order) }

// State returns the state of a service; false: there is no such service.
func (s *Set) State(name string) (State, bool) {
	m := s.services[name]
	if m == nil {
		return State{}, false
	}
	return m.state, true
}

// Rules returns the declaration of a service; nil: there is no such service.
func (s *Set) Rules(name string) *config.Service {
	if m := s.services[name]; m != nil {
		return m.rules
	}
	return nil
}

// Deadline returns when to call Tick if no event comes before; 0: never.
func (s *Set) Deadline() (next Time) {
	for _, m := range s.services {
		if d := m.state.Deadline(); d != 0 && (next == 0 || d < next) {
			next = d
		}
	}
	return next
}

// Tick steps all services whose deadline has come.
func (s *Set) Tick(at Time, random float64) (out []Do) {
	for _, name := range s.order {
		if m := s.services[name]; m != nil {
			if d := m.state.Deadline(); d != 0 && d <= at {
				out = append(out, s.Step(name, Event{Kind: Tick, At: at, Random: random})...)
			}
		}
	}
	return out
}

// Step applies an event to one service, and its consequences to the dependents. An
// event for an unknown service does nothing.
func (s *Set) Step(name string, ev Event) (out []Do) {
	m := s.services[name]
	if m == nil {
		return nil
	}
	before := m.state
	next, effects := Step(m.rules, m.state, ev)
	m.state = next
	for _, e := range effects {
		out = append(out, Do{name, e})
	}
	out = append(out, s.after(name, before, ev)...)
	return out
}

// after tells dependents what has become of a service.
func (s *Set) after(name string, before State, ev Event) (out []Do) {
	now := s.services[name].state
	left := before.Phase == Running && now.Phase != Running && now.Up
	for _, other := range s.order {
		m := s.services[other]
		if m == nil {
			continue
		}
		at := slices.IndexFunc(m.rules.DependsOn, func(d config.Dependency) bool { return d.Service == name })
		if at < 0 {
			continue
		}
		if text := s.unmet(m.rules); text != m.state.Unmet || m.state.Met != (text == "") {
			out = append(out, s.Step(other, Event{Kind: Needs, At: ev.At, Random: ev.Random, OK: text == "", Text: text})...)
		}
		if m.rules.DependsOn[at].Restart && left {
			out = append(out, s.Step(other, Event{Kind: Bounced, At: ev.At, Random: ev.Random, Text: name + ", which it depends on, restarts"})...)
		}
	}
	return append(out, s.endReady(ev)...)
}

// unmet says what a service needs and has not; "": nothing.
func (s *Set) unmet(rules *config.Service) string {
	var missing []string
	for _, d := range rules.DependsOn {
		m := s.services[d.Service]
		if m == nil {
			missing = append(missing, fmt.Sprintf("%s, which is not declared any more", d.Service))
			continue
		}
		st, ok, what := &m.state, false, ""
		switch d.Condition {
		case config.Ready:
			ok, what = st.Phase == Running && st.Ready, "be ready"
		case config.Started:
			ok, what = st.Phase == Running, "start"
		case config.Completed:
			ok, what = st.Done, "complete"
		case config.LogLine:
			ok, what = st.Phase == Running && slices.Contains(st.Lines, rules.Name), "write its line"
		}
		if !ok {
			text := d.Service + " to " + what
			if st.Phase == Failed || st.Phase == Idle || st.Phase == Waiting {
				text += ", which is " + st.Phase.String()
			}
			missing = append(missing, text)
		}
	}
	return strings.Join(missing, "; ")
}

// Up starts services and their dependencies. No names: all that are not disabled. If a
// name is unknown, it returns an error and does nothing.
func (s *Set) Up(names []string, at Time, random float64) (out []Do, err error) {
	if err := s.foreign(names); err != nil {
		return nil, err
	}
	want, err := s.closure(names, func(name string) []string {
		var needs []string
		for _, d := range s.services[name].rules.DependsOn {
			needs = append(needs, d.Service)
		}
		return needs
	})
	if err != nil {
		return nil, err
	}
	for _, name := range s.order {
		if m := s.services[name]; m != nil && want[name] && !m.state.Leaving {
			m.state.Ending = false
			out = append(out, s.Step(name, Event{Kind: WantUp, At: at, Random: random})...)
		}
	}
	return out, nil
}

// Down ends services and their dependents: each one once no dependent of it runs any
// more. No names: all.
func (s *Set) Down(names []string, at Time, random float64) ([]Do, error) {
	if err := s.foreign(names); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = s.order
	}
	want, err := s.closure(names, s.dependents)
	if err != nil {
		return nil, err
	}
	for name := range want {
		m := s.services[name]
		m.state.Ending = !m.state.Foreign
	}
	return s.endReady(Event{At: at, Random: random}), nil
}

// Restart restarts only the named services.
func (s *Set) Restart(names []string, at Time, random float64) (out []Do, err error) {
	if err := s.foreign(names); err != nil {
		return nil, err
	}
	if _, err := s.closure(names, func(string) []string { return nil }); err != nil {
		return nil, err
	}
	for _, name := range s.order {
		if slices.Contains(names, name) && !s.services[name].state.Leaving {
			s.services[name].state.Ending = false
			out = append(out, s.Step(name, Event{Kind: WantRestart, At: at, Random: random})...)
		}
	}
	return out, nil
}

// Adopt makes an existing process, which may be adopted, the process of a service. It
// does not start the service's dependencies. The error is process.ErrRunning if the
// service runs.
func (s *Set) Adopt(name string, a Adopted, at Time, random float64) (out []Do, err error) {
	if err := s.foreign([]string{name}); err != nil {
		return nil, err
	}
	m := s.services[name]
	if m == nil || m.state.Leaving {
		return nil, &UnknownError{Name: name, Known: slices.Clone(s.order)}
	}
	if m.state.Phase.Alive() {
		return nil, errtext.New(fmt.Sprintf("service %s runs already; tend down %[1]s ends it", name), process.ErrRunning)
	}
	if by, ok := s.AdoptedBy(a); ok {
		return nil, fmt.Errorf("pid %d is the service %s already: %w", a.PID, by, process.ErrPermission)
	}
	m.state.Ending = false
	return s.Step(name, Event{Kind: WantAdopted, At: at, Random: random, Adopted: &a}), nil
}

// AdoptedBy returns the service that adopted a process; false: none.
func (s *Set) AdoptedBy(a Adopted) (name string, ok bool) {
	for name, m := range s.services {
		if has := m.state.Adopted; has != nil && *has == a && m.state.Phase.Alive() {
			return name, true
		}
	}
	return "", false
}

// closure is the names and all that next leads to from them.
func (s *Set) closure(names []string, next func(string) []string) (map[string]bool, error) {
	all := map[string]bool{}
	if len(names) == 0 {
		for name, m := range s.services {
			if !m.rules.Disabled {
				names = append(names, name)
			}
		}
	}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if s.services[name] == nil {
			return nil, &UnknownError{Name: name, Known: slices.Clone(s.order)}
		}
		if !all[name] {
			all[name] = true
			names = append(names, next(name)...)
		}
	}
	return all, nil
}

// UnknownError says that there is no service with that name. It wraps
// process.ErrNotFound.
type UnknownError struct {
	Name  string
	Known []string
}

// maxKnown bounds the names in the text of an error.
const maxKnown = 10

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("there is no service %.80q", e.Name)
	switch n := len(e.Known); {
	case n == 0:
		return text + ", and no other; tend up declares those of a tend.yaml"
	case n > maxKnown:
		return fmt.Sprintf("%s; there are %s and %d more", text, strings.Join(e.Known[:maxKnown], ", "), n-maxKnown)
	}
	return text + "; there are " + strings.Join(e.Known, ", ")
}

func (e *UnknownError) Unwrap() error { return process.ErrNotFound }

// foreign is why something that is asked for of these cannot be done.
func (s *Set) foreign(names []string) error {
	for _, name := range names {
		if m := s.services[name]; m != nil && m.state.Foreign {
			return &ForeignError{Name: name, Why: m.state.Why}
		}
	}
	return nil
}

// ForeignError says that another version of tend stored the service, so nothing is done
// to it. It wraps process.ErrUnsupported.
type ForeignError struct{ Name, Why string }

func (e *ForeignError) Error() string { return "service " + e.Name + ": " + e.Why }

func (e *ForeignError) Unwrap() error { return process.ErrUnsupported }

// dependents are the services that depend on one directly.
func (s *Set) dependents(name string) (all []string) {
	for other, m := range s.services {
		if slices.ContainsFunc(m.rules.DependsOn, func(d config.Dependency) bool { return d.Service == name }) {
			all = append(all, other)
		}
	}
	return all
}

// endReady ends those that are to end and that nothing needs any more, the last first.
// It forgets those that have ended and are to leave.
func (s *Set) endReady(ev Event) (out []Do) {
	for _, name := range slices.Backward(s.order) {
		m := s.services[name]
		if m == nil || !m.state.Ending {
			continue
		}
		if !m.state.Up && m.state.Phase == Idle {
			if m.state.Ending = false; m.state.Leaving {
				delete(s.services, name)
				s.order = slices.DeleteFunc(slices.Clone(s.order), func(other string) bool { return other == name })
			}
			continue
		}
		if m.state.Up && !slices.ContainsFunc(s.dependents(name), func(other string) bool { return s.services[other].state.Ending }) {
			out = append(out, s.Step(name, Event{Kind: WantDown, At: ev.At, Random: ev.Random})...)
		}
	}
	return out
}

// Apply applies a new declaration of the services with its prefix. Services that it no longer
// names end and are forgotten; running services whose process would be different restart; the
// others continue under the new rules. New ones wait for Up.
func (s *Set) Apply(c *config.Config, at Time, random float64) (out []Do) {
	var others []string
	order := c.Order()
	for _, name := range s.order {
		if prefix, _ := config.SplitName(name); prefix != c.Prefix {
			others = append(others, name)
		} else if c.Services[name] == nil {
			m := s.services[name]
			alone := *m.rules
			alone.DependsOn = nil
			m.rules, m.state.Ending, m.state.Leaving = &alone, !m.state.Foreign, !m.state.Foreign
			order = append(order, name)
		}
	}
	kinds := map[string]EventKind{}
	for name, rules := range c.Services {
		m := s.services[name]
		if m == nil {
			s.services[name] = &member{rules: rules}
			continue
		}
		before, after := m.rules, rules
		if m.state.Adopted != nil { // it has another environment in any case: its own
			a, b := *before, *after
			a.Env, b.Env = nil, nil
			before, after = &a, &b
		}
		if kinds[name] = Ruled; m.state.Phase.Alive() && m.state.Up && OtherProcess(before, after) {
			kinds[name] = WantRestart
		}
		m.rules, m.state.Leaving = rules, false
	}
	s.order = append(others, order...)
	for _, name := range s.order {
		m := s.services[name]
		if m == nil {
			continue // it has left
		}
		if kind, ok := kinds[name]; ok {
			out = append(out, s.Step(name, Event{Kind: kind, At: at, Random: random})...)
		}
		if text := s.unmet(m.rules); text != m.state.Unmet || m.state.Met != (text == "") {
			out = append(out, s.Step(name, Event{Kind: Needs, At: at, Random: random, OK: text == "", Text: text})...)
		}
	}
	return append(out, s.endReady(Event{At: at, Random: random})...)
}

// OtherProcess reports whether two declarations of a service need different processes.
func OtherProcess(a, b *config.Service) bool {
	of := func(s *config.Service) config.Service {
		return config.Service{
			Command: s.Command, Cwd: s.Cwd, Env: s.Env, Inherit: s.Inherit, User: s.User, Sandbox: s.Sandbox,
			Limits: s.Limits, Forks: s.Forks, Log: config.Log{Limit: s.Log.Limit}, Sockets: s.Sockets,
		}
	}
	x, y := of(a), of(b)
	if len(x.Env) == 0 && len(y.Env) == 0 {
		x.Env, y.Env = nil, nil
	}
	return !reflect.DeepEqual(x, y)
}
