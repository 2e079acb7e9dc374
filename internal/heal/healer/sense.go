package healer

import (
	"time"

	"github.com/tend-run/tend/internal/service/supervisor"
)

const (
	// Settled is how long a service must be ready until earlier faults are forgotten.
	Settled = time.Minute
	// faultsAt faults, with restarts between them, mean that a restart does not repair it.
	faultsAt = 2
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
}

// Saw takes one notice, and returns the signal for which to open an episode; nil: none.
func (s *Sense) Saw(n supervisor.Notice, run int64, text string, at time.Time) *Signal {
	signal := func(kind string) *Signal {
		s.Status = Suspected
		return &Signal{Kind: kind, Text: text, Run: run, At: at}
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
		if s.Faults++; s.Faults < faultsAt {
			return nil
		}
		if n == supervisor.NoticeExit && s.Was {
			return signal("flap")
		}
		return signal(n.Signal())
	case supervisor.NoticeFlapping, supervisor.NoticeFailed:
		return signal(n.Signal())
	case supervisor.NoticeStuck: // the supervisor restarts it, which is all that is done
		s.Ready, s.Status = time.Time{}, Verifying
	case supervisor.NoticeCompleted:
		*s = Sense{}
	}
	return nil
}

// Settle forgets the faults of a service that has been ready for long.
func (s *Sense) Settle(at time.Time) {
	if !s.Ready.IsZero() && at.Sub(s.Ready) >= Settled {
		*s = Sense{Ready: s.Ready}
	}
}

// Forget is called after an episode: earlier faults do not count again.
func (s *Sense) Forget() { *s = Sense{Ready: s.Ready} }
