package healer

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status of a service, as its healer sees it.
type Status uint8

const (
	Running   Status = iota // nothing is known to be wrong
	Suspected               // something is, and it is being found out what
	Healing
	Verifying
	Ready  // it was repaired
	Broken // it was not, and nothing more is done by itself
)

var statusNames = [...]string{"running", "suspected", "healing", "verifying", "ready", "broken"}

func (s Status) String() string { return nameOf(statusNames[:], "status", uint8(s)) }

// MarshalText implements encoding.TextMarshaler.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A status of a later version is
// Running: nothing is known.
func (s *Status) UnmarshalText(text []byte) error {
	if parseName(statusNames[:], "status", text, (*uint8)(s)) != nil {
		*s = Running
	}
	return nil
}

// Action is the present step of an episode.
type Action uint8

const (
	Nothing Action = iota
	Look
	Checkpoint
	Act
	Verify
	Review
	Commit
	Rollback
	Over // the episode has ended
)

var actionNames = [...]string{"nothing", "look", "checkpoint", "act", "verify", "review", "commit", "rollback", "over"}

func (a Action) String() string { return nameOf(actionNames[:], "action", uint8(a)) }

// MarshalText implements encoding.TextMarshaler.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. An action of a later version is
// Nothing: an error would end the journal at its line, and what follows would be cut off.
func (a *Action) UnmarshalText(text []byte) error {
	if parseName(actionNames[:], "action", text, (*uint8)(a)) != nil {
		*a = Nothing
	}
	return nil
}

func nameOf(names []string, what string, n uint8) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", what, n)
}

func parseName(names []string, what string, text []byte, to *uint8) error {
	for i, name := range names {
		if name == string(text) {
			*to = uint8(i)
			return nil
		}
	}
	return fmt.Errorf("%.40q is no %s of an episode", text, what)
}

// Kinds of remedies, from the mildest on.
const (
	Wait    = "wait"     // nothing: it may have recovered
	Restart = "restart"  // of the service
	Book    = "playbook" // Name says which
	Model   = "model"    // one attempt of a model
	Apply   = "apply"    // of a held change, the only one of its order
	Undo    = "undo"     // the only one where a repair is taken back
)

// Remedy is one thing to try.
type Remedy struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	Why  string `json:"why,omitempty"`
	// Tree: it may change files, so it runs between a checkpoint and a commit or rollback.
	Tree bool `json:"tree,omitempty"`
	// Keep: its changes do not belong to the project's history, and are not committed.
	Keep bool `json:"keep,omitempty"`
}

func (r Remedy) String() string {
	if r.Name != "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind
}

// Signal is a fault that was seen.
type Signal struct {
	// Kind is exit, flap, health, stuck, pressure or asked.
	Kind string    `json:"kind"`
	Text string    `json:"text,omitempty"`
	Run  int64     `json:"run,omitempty"` // of the service
	At   time.Time `json:"at"`
}

// Bounds of an episode.
const (
	MaxRemedies  = 16
	MaxWorkers   = 6       // that may work on an episode, one after the other
	MaxRollbacks = 3       // tries to roll back one remedy
	MaxSignals   = 32      // that are kept
	MaxText      = 8 << 10 // bytes of each text in a journal
)

// Killed is the reason of a remedy whose worker died: its progress is unknown.
const Killed = "its worker ended"

// Try is a remedy that was tried.
type Try struct {
	Remedy
	Begun, Ended time.Time
	// Failed says why it did not help; "": it helped, or it is still running.
	Failed string
	// Text describes what it did.
	Text string
	// Paths that it changed.
	Paths []string
	// Tokens and Steps that a model has used.
	Tokens, Steps int64
	// Cost of that, if there are prices.
	Cost float64
	// Unreached: the model did not answer, so nothing was tried. It does not count as an
	// attempt.
	Unreached bool
}

// State is the state of an episode. The zero value is an episode that was not opened.
type State struct {
	ID, Service string
	Status      Status
	// Back is the episode to take back; "": this is a repair. Then Ready means that it was
	// taken back, and Broken that it was not.
	Back string
	// DryRun: the episode ends after Look.
	DryRun bool
	// Doing is the present step, and Seq its number; an answer has the same number.
	Doing Action
	Seq   int64
	// Signals are the observed faults; the first one opened the episode.
	Signals []Signal
	// Remedies to try, and how many of them were started.
	Remedies []Remedy
	Begun    int
	Tries    []Try
	// Open: there is a checkpoint, and neither a commit nor a rollback.
	Open bool
	// Verified: what is open was verified; Reviewed: and reviewed.
	Verified, Reviewed bool
	// Rollbacks tried of what is open.
	Rollbacks int
	// Unreached is why the model does not answer, or did not; "": it answers, or was not
	// asked. While it is set, no further attempt begins.
	Unreached string
	// Again: the remedy is tried once more after the rollback.
	Again bool
	// Last: nothing more is tried after the rollback; it says why.
	Last string
	// Clock and Boot are those of the first worker's start; 0: of an older version.
	Clock time.Duration
	Boot  string
	// Workers counts the workers so far.
	Workers int
	// Opened and Ended are its times; Ended is zero until it is over.
	Opened, Ended time.Time
	// Why is the reason of its end.
	Why string
	// Cause is the line of the log that names the fault; "": none does.
	Cause string
	// Lived is the longest life of the service until it failed.
	Lived time.Duration
	// Dirty: a rollback did not succeed, and the tree is not as it was.
	Dirty bool
	// Committed is the commit; "": there is none. Left lists changes that were not
	// committed, and why.
	Committed string
	Left      []string
	// Changed are the paths that prevent taking a repair back.
	Changed []string
	// Proposal is what a person could do, if no remedy helped.
	Proposal string
}

// maxReason bounds a reason, in bytes.
const maxReason = 500

// Reason says for people what is wrong, why it was not repaired, and what a model thought of
// it last.
func (s *State) Reason() string {
	why := s.Why
	if s.Cause != "" && !strings.Contains(why, s.Cause) {
		why = s.Cause + "; " + why
	}
	for _, t := range slices.Backward(s.Tries) {
		if text := strings.Join(strings.Fields(t.Text), " "); t.Kind == Model && text != "" {
			why += "; the model: " + text
			break
		}
	}
	if len(why) > maxReason {
		why = strings.ToValidUTF8(why[:maxReason-len("…")], "") + "…"
	}
	return why
}

// Undid is the repair that the episode has taken back; "": none.
func (s *State) Undid() string {
	if n := len(s.Tries); s.Done() && n > 0 && s.Tries[n-1].Kind == Undo && s.Tries[n-1].Failed == "" {
		return s.Tries[n-1].Name
	}
	return ""
}

// Done reports whether the episode has ended.
func (s *State) Done() bool { return s.Doing == Over }

// Try returns the remedy that is being tried; nil: none.
func (s *State) Try() *Try {
	if len(s.Tries) == 0 || s.Doing < Checkpoint || s.Doing > Rollback {
		return nil
	}
	return &s.Tries[len(s.Tries)-1]
}

// Effect is the next thing to do.
type Effect struct {
	Do  Action
	Seq int64
	// Try is the number of the remedy, from 1, if Do concerns one.
	Try    int
	Remedy Remedy
}
