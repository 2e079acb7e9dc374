package healer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/service/config"
)

// Files of an episode, in its directory.
const (
	OrderFile      = "order.json"
	JournalFile    = "journal"
	InboxFile      = "inbox"      // JSON lines of entries for the worker, which alone writes the journal
	TranscriptFile = "transcript" // JSON lines
	WordsFile      = "words"      // JSON of Words: what a model is writing; none: it is not
	RunningFile    = "running"    // JSON of Command: the command of a playbook that runs; none: none does
	DiffFile       = "diff"
	PointsDir      = "points" // in N/ is the checkpoint of the N-th remedy
	// UndoFile lists the changes of a repair with the content before, as JSON. With it, a
	// repair that was not committed can be taken back.
	UndoFile = "undo.json"
	// LiveFile is the same for a remedy while it is not known whether it helps.
	LiveFile = "live.json"
	// BackFile has the ID of the episode that took this one back.
	BackFile = "taken-back"
	// HeldFile has a change that waits for a person, as JSON of Held.
	HeldFile = "held.json"
	// ForgetFile marks an episode, or a chat, that is about to be removed with the copies
	// that were kept to take something back by hand; a chat may already be removed except
	// for copies that people were told about.
	ForgetFile = "forget"
)

// Bounds of what is kept of an episode, in bytes.
const (
	maxOrder      = 4 << 20
	MaxTranscript = 16 << 20
	MaxDiff       = 256 << 10
	MaxWords      = 64 << 10
)

// Words is the part of a reply that a model has written so far, secrets hidden.
type Words struct {
	Text string `json:"text"`
	Tool string `json:"tool,omitempty"` // that it is about to call
}

// Command is a command of a playbook that runs, secrets hidden.
type Command struct {
	Command string    `json:"command"`
	Begun   time.Time `json:"begun"`
	Line    string    `json:"line,omitempty"` // that it has written last
}

// TakenBackFile has the diff of the n-th try, from 1, after it was taken back.
func TakenBackFile(n int) string { return fmt.Sprintf("attempt-%d.diff", n) }

// Order tells a worker about its episode. It contains the environment of the service, and
// no key.
type Order struct {
	ID string `json:"id"`
	// Dir of the episode, and StateDir of the daemon. Both are private to tend.
	Dir      string `json:"dir"`
	StateDir string `json:"state_dir"`
	// Keys is the file with the credentials for the model; see Secrets.
	Keys string `json:"keys,omitempty"`
	// URL of the daemon.
	URL string `json:"url"`
	// File that declares the service.
	File   string          `json:"file"`
	Rules  *config.Service `json:"rules"`
	Healer *config.Healer  `json:"healer"`
	// Service is the name of Rules, which is not in its JSON.
	Service string `json:"service"`
	// SandboxID is the ID of the sandbox that Rules name, at the time of the order; "":
	// there is none, or it is unknown, as in orders of earlier versions. A later sandbox
	// with the same name is a different place.
	SandboxID string `json:"sandbox_id,omitempty"`
	Signal    Signal `json:"signal"`
	// DryRun: only find out what would be tried.
	DryRun bool      `json:"dry_run,omitempty"`
	At     time.Time `json:"at"`
	// Back is the repair to take back; nil: this order is a repair.
	Back *Back `json:"back,omitempty"`
	// Last is the newest repair, while it is not known whether it lasts: it is taken back if its fault
	// has come back. nil: there is none.
	Last *Back `json:"last,omitempty"`
	// Apply is the episode whose held change is applied, and Hash that of it; "": this is another order.
	Apply string `json:"apply,omitempty"`
	Hash  string `json:"hash,omitempty"`
}

// Back says which repair to take back.
type Back struct {
	Episode string `json:"episode"` // which made it; or a turn of a chat, as CHAT/TURN
	Commit  string `json:"commit,omitempty"`
	// Undo is the path of the UndoFile, if there is no commit.
	Undo string `json:"undo,omitempty"`
	// Turn: Episode is CHAT/TURN, and Undo has the changes of that turn.
	Turn int64 `json:"turn,omitempty"`
	// Cause is the line of the log that named the fault, of a repair that may not last.
	Cause string `json:"cause,omitempty"`
}

// Secrets are the credentials of requests. They are never logged or sent to a model.
type Secrets struct {
	// Key of the model, and BaseURL of its API; "": the provider's own.
	Key     string `json:"key,omitempty"`
	BaseURL string `json:"base_url,omitempty"`
	// Token of the daemon, if its URL needs one.
	Token string `json:"token,omitempty"`
}

// ReadOrder reads the order in the directory of an episode or a chat. The error is
// fs.ErrNotExist if there is none.
func ReadOrder(dir string) (*Order, error) {
	data, err := atomicfile.Read(filepath.Join(dir, OrderFile), maxOrder)
	if err != nil {
		return nil, err
	}
	o := new(Order)
	if err := json.Unmarshal(data, o); err != nil {
		return nil, fmt.Errorf("%s: %w", OrderFile, err)
	}
	if o.Rules == nil || o.Healer == nil {
		return nil, fmt.Errorf("%s says not of which service it is, and how that is repaired", OrderFile)
	}
	o.Rules.Name = o.Service
	return o, nil
}

// SandboxKey is the ID or name of the service's sandbox; "": it runs on the machine.
func (o *Order) SandboxKey() string {
	if o.Rules.Sandbox == "" {
		return ""
	}
	return cmp.Or(o.SandboxID, o.Rules.Sandbox)
}

// Path returns the path of a file of the episode.
func (o *Order) Path(name string) string { return filepath.Join(o.Dir, name) }
