package work

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/tend-run/tend/healer"
	"github.com/tend-run/tend/healer/agent"
	"github.com/tend-run/tend/healer/guard"
	"github.com/tend-run/tend/internal/replace"
)

// wordsEvery is the least time between two looks at what a model is writing.
const wordsEvery = 150 * time.Millisecond

// words show what a model is writing, in a file that is replaced as more comes. It is for
// whoever looks on, and nothing depends on it. Its methods are called one after the other.
type words struct {
	path   string
	redact *guard.Redactor

	text  strings.Builder
	tool  string
	shown time.Time
	kept  bool // the file is there
}

// take takes a piece of a reply.
func (w *words) take(d agent.Delta) {
	if d.Again {
		w.over()
	}
	if room := healer.MaxWords - w.text.Len(); room > 0 {
		w.text.WriteString(strings.ToValidUTF8(d.Text[:min(len(d.Text), room)], ""))
	}
	if d.Text != "" {
		w.tool = ""
	}
	if d.Tool != "" {
		w.tool = d.Tool[:min(len(d.Tool), 64)]
	}
	if now := time.Now(); d.Tool != "" || now.Sub(w.shown) >= wordsEvery {
		w.shown = now
		w.show()
	}
}

func (w *words) show() {
	text := w.text.String()
	if w.tool == "" {
		text = w.redact.Begun(text)
	} else {
		text = w.redact.Text(text) // nothing more comes of it
	}
	if text == "" && w.tool == "" {
		return
	}
	data, err := json.Marshal(healer.Words{Text: text, Tool: strings.ToValidUTF8(w.tool, "")})
	if err == nil {
		w.kept = true
		_ = replace.File(w.path, data, 0o600)
	}
}

// over: the reply is whole, or void.
func (w *words) over() {
	w.text.Reset()
	w.tool, w.shown = "", time.Time{}
	if w.kept {
		_ = os.Remove(w.path)
		w.kept = false
	}
}
