package local

import (
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// told tells of an event. s.mu is not held; s.life is, or the event is of no change of state.
func (s *sandbox) told(kind driver.EventKind, more func(*driver.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellOf(kind, more)
}

// tellOf is told with s.mu held. Nobody hears of the sandboxes of builds.
func (s *sandbox) tellOf(kind driver.EventKind, more func(*driver.Event)) {
	if s.rec.Build == "" {
		s.d.cfg.Tell.Of(kind, s.rec.info(), more)
	}
}

// isReady reports whether programs run in it.
func (s *sandbox) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable() == nil
}

// updated tells of a change of what is ready, where events are about it. s.mu is held since the
// change: a deadline that is over pauses the sandbox at once, and of what is paused nothing is told.
func (s *sandbox) updated(before time.Time, network bool) {
	deadline := !s.rec.Deadline.Equal(before)
	if s.usable() == nil && (deadline || network) {
		s.tellOf(driver.EventUpdated, func(e *driver.Event) { e.Deadline, e.Network = deadline, network })
	}
}
