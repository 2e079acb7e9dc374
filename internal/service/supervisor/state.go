package supervisor

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

// Time is an instant in nanoseconds on a clock that is never set: since the boot, or
// since any other origin that is the same for all events. 0 is no instant.
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

// State is the state of one service. The zero value is a service that was never
// started.
type State struct {
	Phase Phase
	// Up: the service is wanted to run.
	Up bool
	// Run is the number of the newest start; 0: there was none.
	Run int64
	// Since is when the phase began; Until is when it ends if no event comes before; 0: it
	// waits for an event.
	Since, Until Time
	// Why it is in this phase, in a few words for people; may be empty.
	Why string
	// Ready: it runs, and its probes succeed.
	Ready bool
	// Started is when this run started; 0: not yet.
	Started Time
	// Exit is the exit of the newest run that has ended.
	Exit *process.Exit
	// Restarts are the times of the restarts that count, within the window, oldest first.
	Restarts []Time
	// Changes are the times of restarts for watched files, the newest ones, oldest first.
	Changes []Time
	// Total counts all automatic starts after the first start.
	Total int64
	// Done: the newest run that has ended was successful.
	Done bool
	// Met: its dependencies are met; Unmet says which are not.
	Met   bool
	Unmet string
	// Away says why its sandbox cannot run it now, in words that begin with "its sandbox";
	// "": it can, or the service has no sandbox. A run is suspended meanwhile.
	Away string
	// Starved says that the kernel killed a process of this run because memory ran out;
	// "": no such kill is known.
	Starved string
	// Due: its scheduled time has come, and it has not been started for that yet.
	Due bool
	// Look: before the next start, look for an existing process to adopt, as the
	// declaration says.
	Look bool
	// Adopted is the process of this run, if tend did not start it; nil: tend did, or
	// there is no run.
	Adopted *Adopted `json:",omitempty"`
	// AdoptedBy is the rule by which it was found; nil: there is none, a caller named it,
	// or an earlier version adopted it.
	AdoptedBy *config.Adopt `json:",omitempty"`
	// Lines are the names of the dependents whose awaited line this run has written.
	Lines []string
	// Ending: it ends once its dependents have ended; Leaving: it is then also forgotten.
	// Set uses these fields.
	Ending, Leaving bool

	// Probes by Role.
	Probes [roles]Probe
	// Forked: the command has ended, and the service runs in its descendants.
	Forked bool
	// Then is the next step when the tree is gone.
	Then then
	// Hook is the one that the phase waits for: PreStart while it is Starting, PreStop
	// and PostStop while it is Stopping. NoHook: it waits for the process.
	Hook Hook
	// Greeting: the hook PostStart of this run was requested; Greeted: it has also ended.
	Greeting, Greeted bool
	// Foreign: another version of tend stored the state, and this version does not
	// understand all of it. Nothing is done to the service, and the caller keeps the
	// stored state as it is.
	Foreign bool `json:"-"`
	// Last is the time of the newest event; Late: it came long after its deadline.
	Last Time
	Late bool
}

// Adopted identifies a process that tend did not start, permanently within a boot.
type Adopted struct {
	PID int
	// Start is when it started, in ticks since the boot, as /proc/PID/stat has it.
	Start int64
	// Leads: it leads its session, so the members of the session belong to its tree.
	Leads bool
}

// Probe is the state of one of a service's probes.
type Probe struct {
	// Next is the time of the next probe; 0: not before the current one has ended, or
	// never.
	Next Time
	// Asked is the start of the running probe; 0: none runs.
	Asked Time
	// Seq numbers the probes. A result with another number is too late.
	Seq int64
	// OK: it has succeeded, and has not failed too often since.
	OK bool
	// Failures in a row; Doubts are those that did not count.
	Failures, Doubts int
	// Text is the text of the newest failure.
	Text string
}

// Role is the purpose of a probe.
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

// Unknown reports a part of a stored state that this version does not understand,
// because another version of tend stored it; nil: none.
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

// Rebase converts a state of an earlier boot, whose times are meaningless now: no run
// of that boot is alive, and all pending deadlines are due now.
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
