package guard

import (
	"io"
	"strings"
)

const (
	// maxHeldLine is how much of a line is held back until its end comes.
	maxHeldLine = 16 << 10
	// maxHeld is the most that is held back.
	maxHeld = 1 << 20
)

// Writer removes secrets from a stream, also those that come in several writes. It holds
// back a line until its end, at most 16 KiB, and a possible beginning of a secret, at most
// 1 MiB. Close writes the rest; it does not close w.
func (r *Redactor) Writer(w io.Writer) io.WriteCloser { return &writer{r: r, w: w} }

type writer struct {
	r    *Redactor
	w    io.Writer
	held string
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (int, error) {
	w.held += string(p)
	if len(w.held) <= maxHeldLine && strings.IndexByte(string(p), '\n') < 0 {
		return len(p), nil
	}
	w.r.mu.RLock()
	spans, open := w.r.spans(w.held)
	w.r.mu.RUnlock()
	line := strings.LastIndexByte(w.held, '\n') + 1
	cut := min(open, openKey(w.held), max(line, len(w.held)-maxHeldLine/2))
	if len(w.held)-cut > maxHeld {
		cut = len(w.held) - maxHeld/2
	}
	n := len(spans)
	for n > 0 && spans[n-1].end > cut {
		n--
		cut = min(cut, spans[n].start)
	}
	if cut == 0 && len(w.held) > maxHeld {
		// One secret without an end: it is hidden, and so is what follows of it.
		cut, n = len(w.held), len(spans)
	}
	out := w.r.render(w.held[:cut], spans[:n])
	w.held = w.held[cut:]
	if out == "" {
		return len(p), nil
	}
	if _, err := io.WriteString(w.w, out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements [io.Closer].
func (w *writer) Close() error {
	out := w.r.Text(w.held)
	w.held = ""
	if out == "" {
		return nil
	}
	_, err := io.WriteString(w.w, out)
	return err
}
