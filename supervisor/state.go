package supervisor

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor/config"
)

// Time is an instant in nanoseconds on a clock that nobody sets: since the boot, or any
// other origin that is the same for all events. 0 is no instant.
type Time int64

// Add returns the instant d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns how long after u it is.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Phase of a service; see the package comment.
type Phase uint8

const (
	Idle Phase = iota
	Waiting
	Starting
	Running
	Stopping
	Killing
	Pausing
	Completed
	Failed
)

var phaseNames = [...]string{"idle", "waiting", "starting", "running", "stopping", "killing", "pausing", "completed", "failed"}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// adopted is before the phase of an adopted run where that is stored. A version of tend that
// adopts nothing does not know such a phase, and leaves the service as it is: it would not
// find the process, and would start a second one.
const adopted = "adopted_"

// MarshalJSON implements json.Marshaler.
func (s State) MarshalJSON() ([]byte, error) {
	type plain State
	if s.Adopted == nil || !s.Phase.Alive() {
		return json.Marshal(plain(s))
	}
	return json.Marshal(struct {
		plain
		Phase string
	}{plain(s), adopted + s.Phase.String()})
}

// MarshalText implements encoding.TextMarshaler.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Phase) UnmarshalText(text []byte) error {
	for i, name := range phaseNames {
		if name == strings.TrimPrefix(string(text), adopted) {
			*p = Phase(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no phase of a service", text)
}

// Alive reports whether a process of the service may exist.
func (p Phase) Alive() bool {
	return p == Starting || p == Running || p == Stopping || p == Killing
}

// then says what follows when the tree of a run is gone.
type then uint8

const (
	thenJudge   then = iota // what its exit says, under its policy
	thenIdle                // nobody wants it
	thenRestart             // a restart that somebody asked for
	thenRecover             // a restart because something was wrong; it counts
)

// State is what is known of one service. The zero value is one that was never started.
type State struct {
	Phase Phase
	// Up: somebody wants it to run.
	Up bool
	// Run is the number of the newest start; 0: there was none.
	Run int64
	// Since is when the phase began, Until when it ends if nothing happens before; 0:
	// it waits for an event.
	Since, Until Time
	// Why it is in this phase, in a few words for people; may be empty.
	Why string
	// Ready: it runs, and its probes say that it can be used.
	Ready bool
	// Started is when this run came to run; 0: it has not.
	Started Time
	// Exit is how the newest run that ended did.
	Exit *process.Exit
	// Restarts are the times of the restarts that count, within the window, oldest first.
	Restarts []Time
	// Changes are the times of restarts for watched files, the newest ones, oldest first.
	Changes []Time
	// Total counts all starts after the first that nobody asked for.
	Total int64
	// Done: the newest run that ended did so with success.
	Done bool
	// Met: what it depends on is there; Unmet says what is not.
	Met   bool
	Unmet string
	// Away says why its sandbox cannot run it now, in words that begin with "its sandbox";
	// "": it can, or the service has none. What runs meanwhile stands still.
	Away string
	// Starved says that the kernel has killed a process of this run for want of memory; "":
	// it is not known to have.
	Starved string
	// Due: its time has come, and it has not been started for it yet.
	Due bool
	// Look: what starts next is looked for first, as the declaration says: it may be there,
	// and is adopted then.
	Look bool
	// Adopted is the process that this run is, if tend did not start it; nil: tend did, or
	// there is none.
	Adopted *Adopted `json:",omitempty"`
	// AdoptedBy is the rule by which it was found; nil: there is none, or a caller has named
	// it, or a former version has adopted it.
	AdoptedBy *config.Adopt `json:",omitempty"`
	// Lines are the names of dependents whose line this run has written.
	Lines []string
	// Ending: it is to end once those that depend on it have; Leaving: and to be
	// forgotten then. They are the set's.
	Ending, Leaving bool

	// Probes by Role.
	Probes [roles]Probe
	// Forked: the command has ended, and the service runs in its descendants.
	Forked bool
	// Then is what follows when the tree is gone.
	Then then
	// Hook is the one that the phase waits for: PreStart while it is Starting, PreStop
	// and PostStop while it is Stopping. NoHook: it waits for the process.
	Hook Hook
	// Greeting: the hook PostStart of this run was asked for; Greeted: and it has ended.
	Greeting, Greeted bool
	// Foreign: another version of tend has stored it, and this one does not know all that
	// it says. Nothing is done to the service, and the caller keeps what is stored as it is.
	Foreign bool `json:"-"`
	// Last is the time of the newest event; Late: it came long after its deadline.
	Last Time
	Late bool
}

// Adopted is a process that tend did not start, by what names it for ever within a boot.
type Adopted struct {
	PID int
	// Start is when it started, in ticks since the boot, as /proc/PID/stat has it.
	Start int64
	// Leads: it leads its session, whose members are of its tree.
	Leads bool
}

// Probe is what is known by one of a service's probes.
type Probe struct {
	// Next is when to ask again; 0: not until the answer is there, or never.
	Next Time
	// Asked is when the question was put whose answer is awaited; 0: none is.
	Asked Time
	// Seq numbers the questions. An answer with another number is too late.
	Seq int64
	// OK: it has succeeded, and not failed too often since.
	OK bool
	// Failures in a row; Doubts are those that did not count.
	Failures, Doubts int
	// Text is what the newest failure said.
	Text string
}

// Role is what a probe is for.
type Role uint8

const (
	Startup Role = iota
	Readiness
	Liveness
	roles
)

var roleNames = [...]string{"startup", "readiness", "liveness"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Unknown says what of a state that was stored has no meaning here, as another version of
// tend has stored it; nil: nothing.
func (s *State) Unknown() error {
	switch {
	case int(s.Phase) >= len(phaseNames):
		return fmt.Errorf("%v is not known", s.Phase)
	case s.Then > thenRecover:
		return fmt.Errorf("what follows its end is %d, which is not known", s.Then)
	case s.Hook > PostStop:
		return fmt.Errorf("%v is not known", s.Hook)
	}
	return nil
}

// Deadline is when Step is to be called with a Tick if no event comes before; 0: never.
func (s *State) Deadline() Time {
	next := s.Until
	if s.Away != "" {
		return next
	}
	for _, p := range s.Probes {
		if p.Next != 0 && (next == 0 || p.Next < next) {
			next = p.Next
		}
	}
	return next
}

// Rebase is for a state of an earlier boot, whose instants mean nothing now: nothing
// that ran then runs, and all that was to happen happens now.
func (s State) Rebase(now Time) State {
	s.Since, s.Last, s.Restarts, s.Changes, s.Late = now, now, nil, nil, false
	if s.Until != 0 {
		s.Until = now
	}
	if s.Started != 0 {
		s.Started = now
	}
	s.Probes = [roles]Probe{}
	s.Adopted, s.AdoptedBy = nil, nil
	return s
}
