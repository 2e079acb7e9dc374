package view

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tend-run/tend/internal/lib/saferegexp"
	"github.com/tend-run/tend/process"
)

const (
	// Window is how much of a line is searched at once: a longer one is
	// searched in pieces of this size.
	Window     = 64 << 10
	maxPattern = 4 << 10
	// MaxContext is the most lines before or after a match.
	MaxContext = 1000
	// maxHeld bounds the text of the lines that are kept because a match may
	// follow, in bytes a stream: of longer ones fewer are shown.
	maxHeld = 1 << 20
)

// GrepOptions say what to look for.
type GrepOptions struct {
	// Pattern is an RE2 regular expression of at most 4 KiB that expands to at
	// most 10,000 steps (x{1000} has 1,000).
	Pattern string
	Streams []process.Stream // empty: all
	From    [4]int64         // where each stream starts, as in Options
	// Limit ends the search after this many matches; 0: never.
	Limit int64
	// StripANSI takes terminal escape sequences away before the search.
	StripANSI bool
	// MaxLine cuts the text of a match to this many bytes; 0: not.
	MaxLine int
	// Invert delivers the lines that do not match.
	Invert bool
	// Before and After are how many lines of the same stream are delivered
	// around a match, 0 to MaxContext.
	Before, After int
}

// Match is a line that matches.
type Match struct {
	Stream process.Stream
	// From and To are the raw range of the line without its end.
	From, To int64
	// Line counts from 1 where the search of the stream began.
	Line int64
	// Text of the line, at most a Window; valid until the next match.
	Text []byte
	// Cut: the text is not all of the line.
	Cut bool
	// Context: it is delivered for a line near it.
	Context bool
}

// Grep delivers the lines of what the process has written until now that match
// the pattern, in the order in which they ended; freed reports a range that was
// freed and could not be searched.
func Grep(ctx context.Context, p process.Process, o GrepOptions, match func(Match) error, freed func(process.Gap) error) error {
	if len(o.Pattern) > maxPattern {
		return &process.InvalidError{Field: "pattern", Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(o.Pattern), maxPattern)}
	}
	re, err := saferegexp.Compile(o.Pattern)
	if err != nil {
		return &process.InvalidError{Field: "pattern", Reason: err.Error()}
	}
	if o.Limit < 0 || o.MaxLine < 0 {
		return &process.InvalidError{Field: "limit", Reason: "or max_line is negative"}
	}
	for _, c := range []struct {
		field string
		lines int
	}{{"before", o.Before}, {"after", o.After}} {
		if c.lines < 0 || c.lines > MaxContext {
			return &process.InvalidError{Field: c.field, Reason: fmt.Sprintf("is %d lines; 0 to %d are allowed", c.lines, MaxContext)}
		}
	}
	info, err := p.Info(ctx)
	if err != nil {
		return err
	}
	v := &viewer{ctx: ctx, p: p}
	g := &grep{ctx: ctx, re: re, o: &o, match: match}
	for _, si := range info.Streams {
		if Wanted(o.Streams, si.Stream) {
			v.streams[si.Stream] = &filter{}
			v.end[si.Stream] = si.End
			if v.from[si.Stream], err = start(si, o.From); err != nil {
				return err
			}
			g.lines[si.Stream] = &line{stream: si.Stream, at: v.from[si.Stream]}
		}
	}
	err = v.read(v.from, func(ev process.Event) (bool, error) {
		l := g.lines[ev.Stream]
		if ev.Kind == process.EventGap {
			if err := g.end(l); err != nil {
				return false, err
			}
			*l = line{stream: l.stream, at: ev.Gap.To, buf: l.buf[:0], n: l.n}
			g.finish()
			return true, freed(ev.Gap)
		}
		err := g.add(l, ev.Data)
		return !g.done, err
	})
	for _, l := range g.lines {
		if err == nil && l != nil && !g.done {
			err = g.end(l)
		}
	}
	return err
}

type grep struct {
	ctx   context.Context // of the one search
	re    *saferegexp.Regexp
	o     *GrepOptions
	match func(Match) error
	lines [4]*line
	found int64
	done  bool
}

// line is the current line of one stream.
type line struct {
	stream process.Stream
	at     int64 // raw offset of buf[0]
	buf    []byte
	n      int64 // lines that ended
	pieces bool  // of a line longer than a window
	text   []byte

	before []Match // that did not match, the last ones
	held   int     // bytes of their text
	after  int     // lines still to be shown after a match
}

func (g *grep) add(l *line, data []byte) error {
	for len(data) > 0 && !g.done {
		i := bytes.IndexByte(data, '\n')
		part := data
		if i >= 0 {
			part = data[:i]
		}
		if room := Window - len(l.buf); len(part) > room {
			l.buf = append(l.buf, part[:room]...)
			data = data[room:]
			if err := g.search(l, true); err != nil {
				return err
			}
			l.at += int64(len(l.buf))
			l.buf, l.pieces = l.buf[:0], true
			continue
		}
		l.buf = append(l.buf, part...)
		if i < 0 {
			return nil
		}
		data = data[i+1:]
		if err := g.search(l, l.pieces); err != nil {
			return err
		}
		l.at += int64(len(l.buf)) + 1
		l.n++
		l.buf, l.pieces = l.buf[:0], false
	}
	return nil
}

// end searches a last line without an end.
func (g *grep) end(l *line) error {
	if len(l.buf) == 0 {
		return nil
	}
	err := g.search(l, l.pieces)
	l.at += int64(len(l.buf))
	l.buf = l.buf[:0]
	return err
}

func (g *grep) search(l *line, cut bool) error {
	text := l.buf
	if g.o.StripANSI {
		var a ansi
		l.text = l.text[:0]
		for _, c := range l.buf {
			if a.shows(c) {
				l.text = append(l.text, c)
			}
		}
		text = l.text
	}
	m := Match{Stream: l.stream, From: l.at, To: l.at + int64(len(l.buf)), Line: l.n + 1, Text: text, Cut: cut}
	if g.o.MaxLine > 0 && len(text) > g.o.MaxLine {
		m.Text, m.Cut = text[:g.o.MaxLine], true
	}
	if g.full() { // only what follows the last match is missing
		return g.around(l, m)
	}
	found, err := g.re.Match(g.ctx, bytes.TrimSuffix(text, []byte{'\r'}))
	if err != nil {
		return err
	}
	if found == g.o.Invert {
		return g.around(l, m)
	}
	for _, earlier := range l.before {
		if err := g.match(earlier); err != nil {
			return err
		}
	}
	l.before, l.held, l.after = l.before[:0], 0, g.o.After
	if err := g.match(m); err != nil {
		return err
	}
	g.found++
	g.finish()
	return nil
}

// full: as many matches as were asked for are found.
func (g *grep) full() bool { return g.o.Limit > 0 && g.found >= g.o.Limit }

// finish ends the search when nothing is to be shown any more.
func (g *grep) finish() {
	g.done = g.full()
	for _, l := range g.lines {
		g.done = g.done && (l == nil || l.after == 0)
	}
}

// around shows a line because it follows a match, or keeps it because one may
// follow.
func (g *grep) around(l *line, m Match) error {
	if m.Context = true; l.after > 0 {
		l.after--
		g.finish()
		return g.match(m)
	}
	if g.o.Before == 0 || g.full() {
		return nil
	}
	m.Text = bytes.Clone(m.Text)
	l.before, l.held = append(l.before, m), l.held+len(m.Text)
	for len(l.before) > g.o.Before || l.held > maxHeld {
		l.held -= len(l.before[0].Text)
		l.before = append(l.before[:0], l.before[1:]...)
	}
	return nil
}
