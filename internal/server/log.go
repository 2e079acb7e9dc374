package server

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
)

// NewLogger returns the logger of a role: lines for people on a terminal,
// JSON for everything else.
func NewLogger(w io.Writer, terminal bool, level slog.Level) *slog.Logger {
	if terminal {
		return slog.New(&textHandler{out: &lockedWriter{w: w}, level: level})
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// textHandler writes "15:04:05.000 event  key=value …", one line a record.
type textHandler struct {
	out    *lockedWriter
	level  slog.Level
	prefix string // of attributes in groups: "group."
	attrs  string // formatted already
}

func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Time.Format("15:04:05.000 "))
	if r.Level != slog.LevelInfo {
		b.WriteString(r.Level.String() + " ")
	}
	b.WriteString(r.Message)
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		writeAttr(&b, h.prefix, a)
		return true
	})
	b.WriteByte('\n')
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := io.WriteString(h.out.w, b.String())
	return err
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		writeAttr(&b, h.prefix, a)
	}
	c := *h
	c.attrs += b.String()
	return &c
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	c := *h
	if name != "" {
		c.prefix += name + "."
	}
	return &c
}

func writeAttr(b *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
		return
	case v.Kind() == slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, g := range v.Group() {
			writeAttr(b, prefix, g)
		}
		return
	}
	text := v.String()
	if text == "" || strings.ContainsAny(text, " \"=\n\t\x1b") {
		text = strconv.Quote(text)
	}
	b.WriteString(" " + prefix + a.Key + "=" + text)
}
