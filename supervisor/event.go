package supervisor

import (
	"fmt"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor/config"
)

// EventKind says what happened.
type EventKind uint8

const (
	// Tick: the deadline has come.
	Tick EventKind = iota
	// WantUp, WantDown and WantRestart are wishes of somebody.
	WantUp
	WantDown
	WantRestart
	// Launched: the start Run came to run; with Adopted it is that process. NotLaunched: it did not, and no trace of
	// it is left (Text says why). Unknown: it could not be found out.
	Launched
	NotLaunched
	Unknown
	// Exited: the process of Run has ended (Exit); Gone: and all its descendants.
	Exited
	// TreeGone: nothing is left of Run.
	TreeGone
	// Probed: the probe Role has answered question Seq: OK, or Text says why not.
	// For a probe of log lines Seq is 0.
	Probed
	// Needs: what it depends on is there (OK), or not (Text says what).
	Needs
	// Line: a line that the dependent Text waits for was written by Run.
	Line
	// Bounced: a service that it depends on restarts, and this one with it.
	Bounced
	// Changed: a watched file has changed, Text.
	Changed
	// Due: a time of its schedule has come.
	Due
	// Stuck: its log stands still after a line that says that something is going on.
	Stuck
	// Pressure: it has become short of something; Text says of what. OK: much of that is
	// its own.
	Pressure
	// Resumed: the service stood still for Gap, with its sandbox or its machine.
	Resumed
	// Found is said once by a caller that goes on from a stored state: Run is alive
	// (Alive), has ended (Exit, Gone), or is not known (neither).
	Found
	// Ruled: its declaration has changed in what needs no restart.
	Ruled
	// Placed: its sandbox can run it (OK), or cannot (Text says why). What runs there and
	// cannot be reached stands still.
	Placed
	// HookDone: Hook of Run has ended: OK, or Text says how it failed.
	HookDone
	// Unheld: nobody holds the sockets of Run any more, so that a restart would close
	// them; Text says why.
	Unheld
	// Starved: the kernel has killed a process of Run for want of memory, in the control
	// group that its limit is of, and Run goes on.
	Starved
	// Absent: there is no process to adopt as Run, and one is to be started.
	Absent
	// WantAdopted: somebody has named a process that the service is from now on (Adopted),
	// and that may be adopted. While anything of it may live it changes nothing.
	WantAdopted
	eventKinds
)

var eventNames = [...]string{"tick", "up", "down", "restart", "launched", "not_launched", "unknown", "exited", "tree_gone", "probed", "needs", "line", "bounced", "changed", "due", "stuck", "pressure", "resumed", "found", "ruled", "placed", "hook_done", "unheld", "starved", "absent", "adopted"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is one thing that happened. Kind and At are always set, the others where the
// kind says so.
type Event struct {
	Kind EventKind
	At   Time
	// Random is in [0, 1): the jitter of a wait that the event leads to.
	Random float64
	Run    int64
	Exit   *process.Exit
	// Adopted is the process that Run is, of Launched and WantAdopted; nil: tend started it.
	Adopted *Adopted
	// By is the rule by which it was found, of Launched; nil: a caller has named it.
	By    *config.Adopt
	Gone  bool
	Alive bool
	Role  Role
	Hook  Hook
	Seq   int64
	OK    bool
	// Doubt: the failure may be the machine's, which had no time for the probe.
	Doubt bool
	Gap   time.Duration
	Text  string
}

// EffectKind says what is to be done.
type EffectKind uint8

const (
	// Launch starts Run. The answer is Launched, NotLaunched or Unknown. A Run that
	// was started before is not started again.
	Launch EffectKind = iota + 1
	// Signal sends Number to the tree of Run.
	Signal
	// Kill ends the tree of Run. The answer is TreeGone, also if there is no such run.
	Kill
	// Ask puts question Seq of probe Role to Run. The answer is Probed.
	Ask
	// Report tells those who listen what was seen: Notice, and Text.
	Report
	// RunHook starts Hook of Run. The answer is HookDone. One that was started before is
	// not started again; then its end is the answer.
	RunHook
	// Adopt looks for the process that the declaration would have adopted, and does nothing
	// to it. The answer is Launched with Adopted, Absent, NotLaunched if it must not be
	// adopted, or Unknown.
	Adopt
)

// Notice is what was seen of a service.
type Notice uint8

const (
	NoticeStarted    Notice = iota + 1
	NoticeReady             // its probes say that it can be used
	NoticeUnready           // and that it cannot any more
	NoticeExit              // it ended, and nobody had asked it to
	NoticeFlapping          // it has been restarted flapAt times within its window
	NoticeUnhealthy         // its probe has failed too often; it is restarted
	NoticeStuck             // its log is stuck
	NoticeResumed           // it, or all, stood still for a time
	NoticeCompleted         // it ended with success, for good
	NoticeFailed            // it is not restarted any more, or not soon
	NoticeSurvivor          // its tree does not die
	NoticePressure          // it is short of something
	NoticeUnfollowed        // watched files change, and it is not restarted for it
	NoticeHook              // one of its hooks has failed, and it goes on all the same
	NoticeAway              // its sandbox cannot run it now
	NoticeUnheld            // nobody holds its sockets any more
	NoticeStarved           // the kernel has killed a process of it for want of memory, and it goes on
)

var noticeNames = [...]string{"", "started", "ready", "unready", "exit", "flapping", "unhealthy", "stuck", "resumed", "completed", "failed", "survivor", "pressure", "unfollowed", "hook", "away", "unheld", "starved"}

func (n Notice) String() string {
	if int(n) < len(noticeNames) {
		return noticeNames[n]
	}
	return fmt.Sprintf("notice(%d)", uint8(n))
}

// Signal is what a notice is a sign of, for those who repair services: exit, flap, health,
// stuck or pressure; "": nothing is wrong, or nothing new.
func (n Notice) Signal() string {
	switch n {
	case NoticeExit, NoticeFailed:
		return "exit"
	case NoticeFlapping:
		return "flap"
	case NoticeUnhealthy:
		return "health"
	case NoticeStuck:
		return "stuck"
	case NoticePressure:
		return "pressure"
	}
	return ""
}

// Effect is one thing to do.
type Effect struct {
	Kind   EffectKind
	Run    int64
	Number int // of a signal
	Role   Role
	Hook   Hook
	Seq    int64
	Notice Notice
	Text   string
}
