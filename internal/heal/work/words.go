package work

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// wordsEvery is the least time between two looks at what a model is writing.
const wordsEvery = 150 * time.Millisecond

// words show what a model is writing, in a file that is replaced as more comes. It is for
// whoever looks on, and nothing depends on it.
type words struct {
	path   string
	redact *guard.Redactor

	mu    sync.Mutex // of all below, and of the file
	text  strings.Builder
	tool  string
	due   *time.Timer // shows what has come since; nil: all is shown
	shown time.Time
	kept  bool // the file is there
}

// take takes a piece of a reply.
func (w *words) take(d agent.Delta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Again {
		w.drop()
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
	switch since := time.Since(w.shown); {
	case since >= wordsEvery:
		w.show()
	case w.due == nil:
		w.due = time.AfterFunc(wordsEvery-since, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.due != nil {
				w.show()
			}
		})
	}
}

// show writes the file. The caller holds mu.
func (w *words) show() {
	w.settle()
	w.shown = time.Now()
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
		_ = atomicfile.File(w.path, data, 0o600)
	}
}

// settle: nothing is due any more.
func (w *words) settle() {
	if w.due != nil {
		w.due.Stop()
		w.due = nil
	}
}

// over: the reply is whole.
func (w *words) over() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
}

// drop forgets what has come. The caller holds mu.
func (w *words) drop() {
	w.settle()
	w.text.Reset()
	w.tool, w.shown = "", time.Time{}
	if w.kept {
		_ = os.Remove(w.path)
		w.kept = false
	}
}
