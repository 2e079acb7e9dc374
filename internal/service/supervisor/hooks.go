package supervisor

import (
	"fmt"
	"time"

	"github.com/tend-run/tend/internal/service/config"
)

// Hook is a point in the life cycle of a service at which the service may run a
// command; see config.Hooks.
type Hook uint8

const (
	NoHook Hook = iota
	PreStart
	PostStart
	PreStop
	PostStop
	hooks
)

// hookSlack is how much longer than its timeout the end of a hook is waited for.
const hookSlack = 5 * time.Second

var hookNames = [...]string{"", "pre_start", "post_start", "pre_stop", "post_stop"}

// Hooks returns all hooks.
func Hooks() []Hook { return []Hook{PreStart, PostStart, PreStop, PostStop} }

func (h Hook) String() string {
	if h < hooks {
		return hookNames[h]
	}
	return fmt.Sprintf("hook(%d)", uint8(h))
}

// HookOf returns the command of a service for a hook; nil: none.
func HookOf(r *config.Service, h Hook) *config.Hook {
	switch h {
	case PreStart:
		return r.Hooks.PreStart
	case PostStart:
		return r.Hooks.PostStart
	case PreStop:
		return r.Hooks.PreStop
	case PostStop:
		return r.Hooks.PostStop
	}
	return nil
}

// hook has a hook of the newest run carried out; false: there is none.
func (m *machine) hook(h Hook) bool {
	if HookOf(m.r, h) == nil {
		return false
	}
	m.do(Effect{Kind: RunHook, Run: m.s.Run, Hook: h})
	return true
}

// start starts the run, after its hook; or has it looked for what is to be adopted in its
// place, for which there is no hook.
func (m *machine) start() {
	if m.s.Look = m.s.Look && m.r.Adopt != nil; m.s.Look {
		m.do(Effect{Kind: Adopt, Run: m.s.Run})
		return
	}
	if m.s.Hook = PreStart; !m.hook(PreStart) {
		m.s.Hook = NoHook
		m.do(Effect{Kind: Launch, Run: m.s.Run})
	}
}

// greet runs the hook of a service that is ready for the first time since its start.
func (m *machine) greet() {
	if !m.s.Greeting && !m.s.Greeted {
		m.s.Greeting = m.hook(PostStart)
	}
}

// during has a hook run in the phase Stopping, and says so; false: there is none.
func (m *machine) during(h Hook, t then, why string) bool {
	rule := HookOf(m.r, h)
	if rule == nil {
		return false
	}
	m.enter(Stopping, rule.Timeout.Std()+hookSlack, why)
	m.s.Then, m.s.Hook = t, h
	return m.hook(h)
}

// hookDone: a hook of the newest run has ended.
func (m *machine) hookDone() {
	s, h := &m.s, m.ev.Hook
	if h == PostStart && !s.Greeting || h != PostStart && (h == NoHook || h != s.Hook) {
		return // it was not waited for any more
	}
	failed := ""
	if !m.ev.OK {
		failed = fmt.Sprintf("its hook %v has failed: %s", h, m.ev.Text)
	}
	if failed != "" && h != PreStart {
		m.report(NoticeHook, failed)
	}
	switch {
	case h == PostStart:
		s.Greeting, s.Greeted = false, true
	case h == PreStart && failed == "":
		s.Hook = NoHook
		m.do(Effect{Kind: Launch, Run: s.Run})
	case h == PreStart:
		m.notLaunched(failed)
	case h == PreStop:
		m.signal(s.Then, s.Why)
	case h == PostStop:
		m.over()
	}
}
