package healer

import (
	"slices"
	"strings"
	"time"
)

// Kind of an entry.
type Kind uint8

const (
	// Opened is the first entry of each journal.
	Opened Kind = iota + 1
	// Signalled: something more was seen of the service.
	Signalled
	// Began: a worker works on the episode, from here on.
	Began
	// Answered: what was to be done (Did, Seq) was done (OK), or Text says why not.
	Answered
	// Expired: the time of the episode is over. Cancelled: somebody wants it to end.
	Expired
	Cancelled
	// Note is for people.
	Note
)

var kindNames = [...]string{"", "opened", "signal", "began", "answered", "expired", "cancelled", "note"}

func (k Kind) String() string { return nameOf(kindNames[:], "kind", uint8(k)) }

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A kind of a later version is a Note.
func (k *Kind) UnmarshalText(text []byte) error {
	if parseName(kindNames[:], "kind", text, (*uint8)(k)) != nil {
		*k = Note
	}
	return nil
}

// Entry is one line of a journal. Kind and At are always set, the other fields depend on
// the kind.
type Entry struct {
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	// ID and Service of an Opened.
	ID      string  `json:"id,omitempty"`
	Service string  `json:"service,omitempty"`
	DryRun  bool    `json:"dry_run,omitempty"`
	Signal  *Signal `json:"signal,omitempty"`
	// Back is the episode to take back; "": this episode is a repair.
	Back   string `json:"back,omitempty"`
	Worker int    `json:"worker,omitempty"`
	// Clock of a Began is the time since the machine's boot, which nobody can set, and Boot
	// is the ID of that boot.
	Clock time.Duration `json:"clock,omitempty"`
	Boot  string        `json:"boot,omitempty"`

	Did  Action `json:"did,omitempty"`
	Seq  int64  `json:"seq,omitempty"`
	OK   bool   `json:"ok,omitempty"`
	Text string `json:"text,omitempty"`
	// Cause is the line of the log that names the fault, as Look has found it.
	Cause string `json:"cause,omitempty"`
	// Lived is the longest life of the service until it failed, as Look has found it.
	Lived time.Duration `json:"lived,omitempty"`
	// Remedies that Look found, and a Proposal.
	Remedies []Remedy `json:"remedies,omitempty"`
	Proposal string   `json:"proposal,omitempty"`
	// Paths that Act changed, and its usage.
	Paths  []string `json:"paths,omitempty"`
	Tokens int64    `json:"tokens,omitempty"`
	Steps  int64    `json:"steps,omitempty"`
	Cost   float64  `json:"cost,omitempty"`
	// Commit that was made; Left says what is not in it.
	Commit string   `json:"commit,omitempty"`
	Left   []string `json:"left,omitempty"`
	// Changed are the paths that prevent taking a repair back.
	Changed []string `json:"changed,omitempty"`
	// Model of a Note is Unreached or Reached; Text says why. Unreached of an Act: the
	// model never answered, so nothing was tried.
	Model string `json:"model,omitempty"`
}

// What an Entry says of the model.
const (
	Unreached = "unreached"
	Reached   = "reached"
)

// why is the text of an entry, which says something.
func (e *Entry) why() string {
	if text := strings.TrimSpace(e.Text); text != "" {
		return text
	}
	return "it does not answer"
}

// Bounds of the lists of an entry, so that no escaping makes it longer than a line may be.
const (
	maxPaths = 100
	maxPath  = 1 << 10
	maxCause = 200
)

// bounded returns the entry with its texts cut to their bounds.
func (e Entry) bounded() Entry {
	e.Text, e.Cause, e.Proposal = cut(e.Text, MaxText), cut(e.Cause, maxCause), cut(e.Proposal, 4*MaxText)
	e.Paths, e.Left, e.Changed = cutAll(e.Paths), cutAll(e.Left), cutAll(e.Changed)
	if e.Signal != nil {
		s := *e.Signal
		s.Text = cut(s.Text, MaxText)
		e.Signal = &s
	}
	if len(e.Remedies) > MaxRemedies {
		e.Remedies = e.Remedies[:MaxRemedies]
	}
	e.Remedies = slices.Clone(e.Remedies)
	for i := range e.Remedies {
		e.Remedies[i].Why = cut(e.Remedies[i].Why, MaxText)
	}
	return e
}

func cutAll(all []string) []string {
	if len(all) > maxPaths {
		all = all[:maxPaths]
	}
	all = slices.Clone(all)
	for i, s := range all {
		if len(s) > maxPath {
			all[i] = cut(s, maxPath)
		}
	}
	return all
}

// cut keeps the beginning and the end of a text that is too long.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= most {
		return s
	}
	half := most/2 - 8
	return strings.ToValidUTF8(s[:half], "") + "\n[…]\n" + strings.ToValidUTF8(s[len(s)-half:], "")
}
