package supervisor

import (
	"fmt"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

// EventKind is the kind of an event.
type EventKind uint8

const (
	// Tick: the deadline has come.
	Tick EventKind = iota
	// WantUp, WantDown and WantRestart are requests of a caller.
	WantUp
	WantDown
	WantRestart
	// Launched: the start with number Run succeeded; with Adopted it is that process.
	// NotLaunched: it failed, and no trace of it is left (Text says why). Unknown: the
	// result could not be found out.
	Launched
	NotLaunched
	Unknown
	// Exited: the process of Run has ended (Exit); Gone: and all its descendants.
	Exited
	// TreeGone: nothing is left of Run.
	TreeGone
	// Probed: the probe Role with number Seq has ended: OK, or Text says why it failed.
	// For a probe of log lines Seq is 0.
	Probed
	// Needs: its dependencies are met (OK), or not (Text says which).
	Needs
	// Line: Run wrote a line that the dependent service Text waits for.
	Line
	// Bounced: a service that it depends on restarts, and this one with it.
	Bounced
	// Changed: a watched file has changed, Text.
	Changed
	// Due: a scheduled time has come.
	Due
	// Stuck: its log has had no new lines since a line that announced ongoing work.
	Stuck
	// Pressure: it is short of a resource; Text says of which. OK: it uses much of that
	// resource itself.
	Pressure
	// Resumed: the service was suspended for Gap, with its sandbox or its machine.
	Resumed
	// Found is sent once by a caller that continues from a stored state: Run is alive
	// (Alive), has ended (Exit, Gone), or is unknown (neither).
	Found
	// Ruled: its declaration has changed in a way that needs no restart.
	Ruled
	// Placed: its sandbox can run it (OK), or cannot (Text says why). A run in a sandbox
	// that cannot be reached is suspended.
	Placed
	// HookDone: Hook of Run has ended: OK, or Text says how it failed.
	HookDone
	// Unheld: the holder of the sockets of Run is gone, so a restart would close them;
	// Text says why.
	Unheld
	// Starved: the kernel killed a process of Run because memory ran out, in the control
	// group of its limit, and Run continues.
	Starved
	// Absent: there is no process to adopt as Run, so one must be started.
	Absent
	// WantAdopted: a caller named a process (Adopted) to be the service from now on; it
	// may be adopted. While any process of the service may be alive, this event changes
	// nothing.
	WantAdopted
	// Elsewhere: Run says that it is ready, or listens on a port, but nothing of it listens
	// where its probe asks; Text says so.
	Elsewhere
	eventKinds
)

var eventNames = [...]string{"tick", "up", "down", "restart", "launched", "not_launched", "unknown", "exited", "tree_gone",
	"probed", "needs", "line", "bounced", "changed", "due", "stuck", "pressure", "resumed", "found", "ruled", "placed",
	"hook_done", "unheld", "starved", "absent", "adopted", "elsewhere"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// NotWhereAsked is what the text of Elsewhere says of a service, before where its probe asks.
const NotWhereAsked = ", but not where its probe asks, "

// Event is one event. Kind and At are always set, the other fields depending on the
// kind.
type Event struct {
	Kind EventKind
	At   Time
	// Random is in [0, 1): the jitter for a wait that the event causes.
	Random float64
	Run    int64
	Exit   *process.Exit
	// Adopted is the process of Run, for Launched and WantAdopted; nil: tend started it.
	Adopted *Adopted
	// By is the rule by which it was found, for Launched; nil: a caller named it.
	By    *config.Adopt
	Gone  bool
	Alive bool
	Role  Role
	Hook  Hook
	Seq   int64
	OK    bool
	// Doubt: the machine may have caused the failure, because it was too busy to run the
	// probe.
	Doubt bool
	Gap   time.Duration
	Text  string
}

// EffectKind is the kind of an effect.
type EffectKind uint8

const (
	// Launch starts Run. The answer is Launched, NotLaunched or Unknown. A Run that
	// was started before is not started again.
	Launch EffectKind = iota + 1
	// Signal sends Number to the tree of Run.
	Signal
	// Kill ends the tree of Run. The answer is TreeGone, even if there is no such run.
	Kill
	// Ask runs probe Role on Run, with the sequence number Seq. The answer is Probed.
	Ask
	// Report sends Notice and Text to the subscribers.
	Report
	// RunHook starts Hook of Run. The answer is HookDone. If the hook was started before,
	// it is not started again; its end is then the answer.
	RunHook
	// Adopt looks for the process to adopt according to the declaration, and does nothing
	// to it. The answer is Launched with Adopted, Absent, NotLaunched if it must not be
	// adopted, or Unknown.
	Adopt
)

// Notice is a reported observation of a service.
type Notice uint8

const (
	NoticeStarted    Notice = iota + 1
	NoticeReady             // its probes succeed
	NoticeUnready           // its probes no longer succeed
	NoticeExit              // it ended without a request
	NoticeFlapping          // it has been restarted flapAt times within its window
	NoticeUnhealthy         // its probe has failed too often; it is restarted
	NoticeStuck             // its log is stuck
	NoticeResumed           // it, or everything, was suspended for a time
	NoticeCompleted         // it ended with success and stays ended
	NoticeFailed            // it is no longer restarted, or not soon
	NoticeSurvivor          // its tree does not die
	NoticePressure          // it is short of a resource
	NoticeUnfollowed        // watched files change, but it is not restarted any more for that
	NoticeHook              // one of its hooks has failed, and it continues nevertheless
	NoticeAway              // its sandbox cannot run it now
	NoticeUnheld            // the holder of its sockets is gone
	NoticeStarved           // the kernel killed one of its processes because memory ran out, and it continues
	NoticeElsewhere         // it serves, but not where its probe asks
)

var noticeNames = [...]string{"", "started", "ready", "unready", "exit", "flapping", "unhealthy", "stuck", "resumed",
	"completed", "failed", "survivor", "pressure", "unfollowed", "hook", "away", "unheld", "starved", "elsewhere"}

func (n Notice) String() string {
	if int(n) < len(noticeNames) {
		return noticeNames[n]
	}
	return fmt.Sprintf("notice(%d)", uint8(n))
}

// Signal returns the healer's signal for a notice: exit, flap, health, stuck or
// pressure; "": no fault, or no new one.
func (n Notice) Signal() string {
	switch n {
	case NoticeExit, NoticeFailed:
		return "exit"
	case NoticeFlapping:
		return "flap"
	case NoticeUnhealthy, NoticeElsewhere:
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
	// Meant is of NoticeExit: it ended with success, or by a signal with which people end
	// programs.
	Meant bool
}
