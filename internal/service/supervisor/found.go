package supervisor

import (
	"github.com/tend-run/tend/process"
)

// found continues from a stored state.
func (m *machine) found() {
	s, ev := &m.s, &m.ev
	if ev.Run != s.Run {
		return
	}
	missing := !ev.Alive && ev.Exit == nil
	switch s.Phase {
	case Starting:
		switch {
		case missing:
			s.Until = 0 // one answer is awaited, not two
			if s.Hook == PreStart || s.Look {
				m.start()
			} else {
				m.do(Effect{Kind: Launch, Run: s.Run})
			}
		case ev.Alive:
			m.launched()
		default:
			m.exited(ev.Exit, ev.Gone)
		}
	case Running:
		switch {
		case ev.Alive:
			m.arm()
			s.Greeting = s.Greeting && m.hook(PostStart)
		case missing && s.Forked:
			s.Then = thenRecover
			m.gone()
		case missing:
			m.exited(&process.Exit{Cause: process.CauseLost, Code: -1}, true)
		case s.Forked && !ev.Gone:
			m.arm()
			s.Greeting = s.Greeting && m.hook(PostStart)
		default:
			s.Forked = false
			m.exited(ev.Exit, ev.Gone)
		}
	case Stopping, Killing:
		switch {
		case ev.Exit != nil && ev.Gone:
			m.exited(ev.Exit, true)
		case missing:
			m.gone()
		case s.Phase == Stopping && ev.Alive && s.Hook == PreStop:
			m.stop(s.Then, s.Why)
		case s.Phase == Stopping && ev.Alive:
			m.signal(s.Then, s.Why)
		default:
			m.kill(s.Then, s.Why)
		}
	default:
		if ev.Alive || ev.Exit != nil && !ev.Gone { // nothing should be there
			t := thenRestart
			if !s.Up || s.Phase == Completed || s.Phase == Failed {
				t = thenIdle
			}
			m.kill(t, "it was found alive")
		}
	}
}
