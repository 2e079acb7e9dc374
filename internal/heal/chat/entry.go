package chat

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
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

// Entry is one line of a journal. Secrets are hidden, except in the person's own messages.
type Entry struct {
	Seq  int64     `json:"-"` // the number of the line, from 1
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	// ID of a Said, to recognise a repetition.
	ID   string `json:"id,omitempty"`
	Text string `json:"text,omitempty"`
	// Message of a Reply, the reason of its end, and its usage.
	Message *agent.Message `json:"message,omitempty"`
	Stop    agent.Stop     `json:"stop,omitempty"`
	Usage   agent.Usage    `json:"usage,omitzero"`
	Cost    float64        `json:"cost,omitempty"`
	// Tool, Call and Input of a Call; Call also of the entries that belong to it.
	Tool  string          `json:"tool,omitempty"`
	Call  string          `json:"call,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// Error of a Result, or of an End.
	Error bool `json:"error,omitempty"`
	// Diff of the changes of a call.
	Diff string `json:"diff,omitempty"`
	// Path that a Question is about, absolute and without links; "": it is about a command.
	Path string `json:"path,omitempty"`
	// Question that an Answer is for, and Yes.
	Question int64 `json:"question,omitempty"`
	Yes      bool  `json:"yes,omitempty"`
	// Turn of a Back: the number of its first message. Episode took back its changes; Text
	// tells the model.
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
