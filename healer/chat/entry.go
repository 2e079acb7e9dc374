package chat

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tend-run/tend/healer/agent"
)

// Kinds of entries; see the package comment.
const (
	Said     = "said"
	Began    = "began"
	Reply    = "reply"
	Call     = "call"
	Question = "question"
	Answer   = "answer"
	Again    = "again"
	Result   = "result"
	Told     = "told"
	Note     = "note"
	Stopped  = "stopped"
	End      = "end"
	Back     = "back"
)

// Entry is one line of a journal. Secrets are hidden in all but what the person has said.
type Entry struct {
	Seq  int64     `json:"-"` // the number of the line, from 1
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	// ID of a Said, by which it is known if it is sent again.
	ID   string `json:"id,omitempty"`
	Text string `json:"text,omitempty"`
	// Message of a Reply, why it ended and what it has used.
	Message *agent.Message `json:"message,omitempty"`
	Stop    agent.Stop     `json:"stop,omitempty"`
	Usage   agent.Usage    `json:"usage,omitzero"`
	Cost    float64        `json:"cost,omitempty"`
	// Tool, Call and Input of a Call; Call of what follows from it.
	Tool  string          `json:"tool,omitempty"`
	Call  string          `json:"call,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// Error of a Result, or of an End.
	Error bool `json:"error,omitempty"`
	// Diff of what a call has changed.
	Diff string `json:"diff,omitempty"`
	// Path of a Question: what it is about, absolute and without links; "": it is about a
	// command.
	Path string `json:"path,omitempty"`
	// Question that an Answer is for, and Yes.
	Question int64 `json:"question,omitempty"`
	Yes      bool  `json:"yes,omitempty"`
	// Turn of a Back: the number of the message that it began with. Episode has taken back
	// what it had changed; Text says so to the model.
	Turn    int64  `json:"turn,omitempty"`
	Episode string `json:"episode,omitempty"`
}

// Bounds of entries, in bytes.
const (
	maxDiff = 64 << 10
	maxText = 128 << 10
)

func (e *Entry) bound() {
	e.Text, e.Diff = cut(e.Text, maxText), cut(e.Diff, maxDiff)
}

// cut keeps the beginning of a text that is too long.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-32], "") + "\n[the rest is left out]\n"
}
