package healer

import (
	"slices"
	"time"

	"github.com/tend-run/tend/internal/service/supervisor"
)

const (
	// Settled is how long a service must be ready until earlier faults are forgotten.
	Settled = time.Minute
	// faultsAt faults, with restarts between them, mean that a restart does not repair it.
	faultsAt = 2
	// Within hour, oftenAt equal faults mean the same, however long it ran between them.
	hour    = time.Hour
	oftenAt = 3
)

// Sense decides from the notices of a service when a restart is not enough. It is plain
// data; the zero value has seen nothing.
type Sense struct {
	Status Status // running, suspected, or verifying after a restart for a stuck log
	// Faults since the service was ready for Settled.
	Faults int
	// Ready is the time since which it is ready; zero: it is not.
	Ready time.Time
	// Was: the newest run was ready before it ended.
	Was bool
	// Hour has the newest faults of the last hour, oldest first.
	Hour []Fault
}

// Fault is an exit or a failed probe.
type Fault struct {
	Notice supervisor.Notice
	Text   string
	At     time.Time
}

// Saw takes one notice, and returns the signal for which to open an episode; nil: none.
func (s *Sense) Saw(e *supervisor.Effect, at time.Time) *Signal {
	n := e.Notice
	signal := func(kind string) *Signal {
		s.Status = Suspected
		return &Signal{Kind: kind, Text: e.Text, Run: e.Run, At: at}
	}
	s.Settle(at)
	switch n {
	case supervisor.NoticeReady:
		s.Ready, s.Was = at, true
		if s.Status == Verifying {
			s.Status = Running
		}
	case supervisor.NoticeStarted:
		s.Ready, s.Was = time.Time{}, false
	case supervisor.NoticeUnready:
		s.Ready = time.Time{}
	case supervisor.NoticeExit, supervisor.NoticeUnhealthy, supervisor.NoticePressure:
		if s.Status = Suspected; n != supervisor.NoticePressure {
			s.Ready = time.Time{}
		}
		often := s.often(e, at)
		if s.Faults++; often {
			return signal("flap")
		} else if s.Faults < faultsAt {
			return nil
		}
		if n == supervisor.NoticeExit && s.Was {
			return signal("flap")
		}
		return signal(n.Signal())
	case supervisor.NoticeFlapping, supervisor.NoticeFailed, supervisor.NoticeElsewhere: // no restart helps
		return signal(n.Signal())
	case supervisor.NoticeStuck: // the supervisor restarts it, which is all that is done
		s.Ready, s.Status = time.Time{}, Verifying
	case supervisor.NoticeCompleted:
		*s = Sense{}
	}
	return nil
}

// often notes a fault, and reports whether it is one of many equal ones. Pressure has judges
// of its own.
func (s *Sense) often(e *supervisor.Effect, at time.Time) bool {
	if e.Notice == supervisor.NoticePressure || e.Meant {
		return false
	}
	s.Hour = slices.DeleteFunc(s.Hour, func(f Fault) bool { return at.Sub(f.At) >= hour })
	s.Hour = append(s.Hour, Fault{e.Notice, e.Text, at})
	s.Hour = s.Hour[max(0, len(s.Hour)-16):]
	n := 0
	for _, f := range s.Hour {
		if f.Notice == e.Notice && f.Text == e.Text {
			n++
		}
	}
	return n >= oftenAt
}

// Settle forgets the faults of a service that has been ready for long, but for those that
// count for an hour.
func (s *Sense) Settle(at time.Time) {
	if !s.Ready.IsZero() && at.Sub(s.Ready) >= Settled {
		*s = Sense{Ready: s.Ready, Hour: s.Hour}
	}
}

// First is when the first fault was seen since the last episode, of those of the last hour; now: none
// was.
func (s *Sense) First(now time.Time) time.Time {
	if len(s.Hour) > 0 {
		return s.Hour[0].At
	}
	return now
}

// Forget is called after an episode: earlier faults do not count again.
func (s *Sense) Forget() { *s = Sense{Ready: s.Ready} }
