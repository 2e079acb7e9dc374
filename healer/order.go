package healer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/replace"
	"github.com/tend-run/tend/supervisor/config"
)

// Files of an episode, in its directory.
const (
	OrderFile      = "order.json"
	JournalFile    = "journal"
	InboxFile      = "inbox"      // JSON lines of entries for the worker, which alone writes the journal
	TranscriptFile = "transcript" // JSON lines
	WordsFile      = "words"      // JSON of Words: what a model is writing; none: it is not
	DiffFile       = "diff"
	PointsDir      = "points" // in N/ is the checkpoint of the N-th remedy
	// UndoFile is what a repair has changed, and what that was before: JSON, with the content
	// of files. One that was not committed can be taken back by it.
	UndoFile = "undo.json"
	// LiveFile is the same of a remedy of which it is not known yet whether it helps.
	LiveFile = "live.json"
	// BackFile holds the ID of the episode that has taken this one back.
	BackFile = "taken-back"
	// ForgetFile says that the episode is about to be removed, with what was kept to take
	// something back by hand; that a chat is, or was but for copies that people were told of.
	ForgetFile = "forget"
)

// Bounds of what is kept of an episode, in bytes.
const (
	maxOrder      = 4 << 20
	MaxTranscript = 16 << 20
	MaxDiff       = 256 << 10
	MaxWords      = 64 << 10
)

// Words are those of a reply that a model is writing, secrets hidden.
type Words struct {
	Text string `json:"text"`
	Tool string `json:"tool,omitempty"` // that it is about to call
}

// TakenBackFile has the diff of the n-th try, from 1, once that was taken back.
func TakenBackFile(n int) string { return fmt.Sprintf("attempt-%d.diff", n) }

// Order is what a worker has to know of its episode. It holds the environment of the
// service, and no key.
type Order struct {
	ID string `json:"id"`
	// Dir of the episode, and StateDir of the daemon, which are nobody else's business.
	Dir      string `json:"dir"`
	StateDir string `json:"state_dir"`
	// Keys is the file with what a model is asked with; see Secrets.
	Keys string `json:"keys,omitempty"`
	// URL of the daemon.
	URL string `json:"url"`
	// File that declares the service.
	File   string          `json:"file"`
	Rules  *config.Service `json:"rules"`
	Healer *config.Healer  `json:"healer"`
	// Service is the name of Rules, which is not in its JSON.
	Service string `json:"service"`
	// SandboxID is that of the sandbox which Rules name, when the order was written; "": there
	// is none, or it was not known, as of orders of earlier versions. Another sandbox of the
	// same name is another place.
	SandboxID string `json:"sandbox_id,omitempty"`
	Signal    Signal `json:"signal"`
	// DryRun: only what would be tried is found out.
	DryRun bool      `json:"dry_run,omitempty"`
	At     time.Time `json:"at"`
	// Back is the repair that is taken back; nil: the service is repaired.
	Back *Back `json:"back,omitempty"`
}

// Back is a repair that is taken back.
type Back struct {
	Episode string `json:"episode"` // which made it; or a turn of a chat, as CHAT/TURN
	Commit  string `json:"commit,omitempty"`
	// Undo is the path of the file to go back by where there is no commit.
	Undo string `json:"undo,omitempty"`
	// Turn: Episode is CHAT/TURN, and Undo is the file of what that turn has changed.
	Turn int64 `json:"turn,omitempty"`
}

// Secrets are what is asked with, and is told to nobody.
type Secrets struct {
	// Key of the model, BaseURL where it is; "": the provider's own.
	Key     string `json:"key,omitempty"`
	BaseURL string `json:"base_url,omitempty"`
	// Token of the daemon, where its URL needs one.
	Token string `json:"token,omitempty"`
}

// ReadOrder reads the order in the directory of an episode or a chat. Where there is none, the
// error is fs.ErrNotExist.
func ReadOrder(dir string) (*Order, error) {
	data, err := replace.Read(filepath.Join(dir, OrderFile), maxOrder)
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

// SandboxKey finds the sandbox of the service; "": it runs on the machine.
func (o *Order) SandboxKey() string {
	if o.Rules.Sandbox == "" {
		return ""
	}
	return cmp.Or(o.SandboxID, o.Rules.Sandbox)
}

// Path is that of a file of the episode.
func (o *Order) Path(name string) string { return filepath.Join(o.Dir, name) }
