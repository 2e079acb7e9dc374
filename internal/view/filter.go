package view

import (
	"bytes"
	"time"
	"unicode/utf8"

	"github.com/tend-run/tend/process"
)

// filter is the way of one stream to the reader.
type filter struct {
	stream  process.Stream
	strip   bool
	maxLine int
	item    func(Item) error

	ansi  ansi
	width int // bytes of the current line that were shown
	// cutFrom is where the rest of a line that was cut begins; -1 if none.
	cutting bool
	cutFrom int64
	at      int64 // end of what came
	time    time.Time
	buf     []byte
}

// add takes raw bytes at an offset.
func (f *filter) add(offset int64, raw []byte) error {
	f.at = offset + int64(len(raw))
	if !f.strip && f.maxLine == 0 {
		return f.text(offset, offset+int64(len(raw)), raw)
	}
	for len(raw) > 0 {
		line := raw
		if i := bytes.IndexByte(raw, '\n'); i >= 0 {
			line = raw[:i+1]
		}
		if err := f.addLine(offset, line); err != nil {
			return err
		}
		offset += int64(len(line))
		raw = raw[len(line):]
	}
	return nil
}

// addLine takes a part of a line, with its end if it has one.
func (f *filter) addLine(offset int64, raw []byte) error {
	ends := raw[len(raw)-1] == '\n'
	if f.cutting {
		if !ends {
			return nil
		}
		last := offset + int64(len(raw)) - 1
		if err := f.endCut(last); err != nil {
			return err
		}
		f.ansi, f.width = ansi{}, 0
		return f.text(last, last+1, raw[len(raw)-1:])
	}
	f.buf = f.buf[:0]
	shown := 0 // raw bytes that buf stands for
	for i, c := range raw {
		if f.strip && !f.ansi.shows(c) {
			shown = i + 1
			continue
		}
		if f.maxLine > 0 && c != '\n' && f.width+len(f.buf) >= f.maxLine {
			return f.cut(offset, raw, shown)
		}
		f.buf = append(f.buf, c)
		shown = i + 1
	}
	f.width += len(f.buf)
	if ends {
		f.width = 0
	}
	return f.text(offset, offset+int64(len(raw)), f.buf)
}

// cut shows the part of the line before shown and leaves out the rest.
func (f *filter) cut(offset int64, raw []byte, shown int) error {
	// No character is cut: its beginning goes with the rest.
	for n := 1; n < utf8.UTFMax && n <= len(f.buf); n++ {
		if c := f.buf[len(f.buf)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(f.buf[len(f.buf)-n:]) {
				f.buf = f.buf[:len(f.buf)-n]
				shown -= n
			}
			break
		}
	}
	if err := f.text(offset, offset+int64(shown), f.buf); err != nil {
		return err
	}
	f.cutting, f.cutFrom = true, offset+int64(shown)
	if raw[len(raw)-1] == '\n' {
		return f.addLine(offset, raw)
	}
	return nil
}

// endCut reports what was left out of a line.
func (f *filter) endCut(to int64) error {
	from := f.cutFrom
	f.cutting = false
	if from >= to {
		return nil
	}
	return f.item(Item{Stream: f.stream, From: from, To: to, Omitted: LongLine})
}

func (f *filter) text(from, to int64, text []byte) error {
	if from == to || len(text) == 0 && !f.strip {
		return nil
	}
	return f.item(Item{Stream: f.stream, From: from, To: to, Text: text, Time: f.time})
}

// omit reports a range that is not shown. The next piece of text begins again.
func (f *filter) omit(from, to int64, why Reason) error {
	if err := f.flush(); err != nil {
		return err
	}
	f.ansi, f.width, f.at = ansi{}, 0, to
	return f.item(Item{Stream: f.stream, From: from, To: to, Omitted: why})
}

// flush reports what is left out of the last line.
func (f *filter) flush() error {
	if !f.cutting {
		return nil
	}
	return f.endCut(f.at)
}
