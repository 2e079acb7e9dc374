package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/hinshun/vt10x"
	"github.com/tend-run/tend/process"
)

// screen is what a terminal shows after some output.
type screen struct{ term vt10x.Terminal }

// Attributes of a glyph; vt10x does not export them.
const (
	attrReverse = 1 << iota
	attrUnderline
	attrBold
	_ // line drawing: the rune is translated already
	attrItalic
	attrBlink
)

// replay builds the screen from the terminal's output from an offset to now
// and returns the offset after it.
func replay(ctx context.Context, p process.Process, from [4]int64, size process.Size) (s *screen, next int64, err error) {
	next = from[process.PTY]
	var out []byte
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Streams: []process.Stream{process.PTY}, From: from, NoFollow: true}) {
		if err != nil {
			return nil, 0, err
		}
		switch ev.Kind {
		case process.EventOutput:
			out = append(out, ev.Data...)
			next = ev.Offset + int64(len(ev.Data))
		case process.EventGap:
			next = ev.Gap.To
		}
	}
	// A character that is still on its way is left for the terminal itself.
	whole := len(out) - unfinishedRune(out)
	next -= int64(len(out) - whole)
	return newScreen(out[:whole], size), next, nil
}

// newScreen interprets out on a terminal of the given size. The emulator is
// not made for hostile output: if it fails, the screen is empty and the
// program's own redraw has to do.
func newScreen(out []byte, size process.Size) (s *screen) {
	blank := func() *screen {
		// Answers to questions in old output are discarded.
		return &screen{vt10x.New(vt10x.WithSize(int(size.Cols), int(size.Rows)), vt10x.WithWriter(io.Discard))}
	}
	s = blank()
	defer func() {
		if recover() != nil {
			s = blank()
		}
	}()
	s.term.Write(out)
	return s
}

// unfinishedRune returns how many bytes at the end of b begin a UTF-8
// character without ending it.
func unfinishedRune(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-n:]) {
				return 0
			}
			return n
		}
	}
	return 0
}

// draw writes the control sequences that make a terminal show the screen.
func (s *screen) draw(w io.Writer) error {
	s.term.Lock()
	defer s.term.Unlock()
	var b strings.Builder
	mode := s.term.Mode()
	if mode&vt10x.ModeAltScreen != 0 {
		b.WriteString("\x1b[?1049h")
	}
	b.WriteString("\x1b[0m\x1b[H\x1b[2J")
	cols, rows := s.term.Size()
	for y := range rows {
		s.drawRow(&b, y, cols)
	}
	if mode&vt10x.ModeAppCursor != 0 {
		b.WriteString("\x1b[?1h")
	}
	if mode&vt10x.ModeAppKeypad != 0 {
		b.WriteString("\x1b=")
	}
	for _, m := range []struct {
		flag vt10x.ModeFlag
		code int
	}{{vt10x.ModeMouseButton, 1000}, {vt10x.ModeMouseMotion, 1002}, {vt10x.ModeMouseMany, 1003}, {vt10x.ModeMouseSgr, 1006}} {
		if mode&m.flag != 0 {
			fmt.Fprintf(&b, "\x1b[?%dh", m.code)
		}
	}
	cursor := s.term.Cursor()
	fmt.Fprintf(&b, "\x1b[%d;%dH", cursor.Y+1, cursor.X+1)
	pen := cursor.Attr
	if pen.Mode&attrReverse != 0 {
		pen.FG, pen.BG = pen.BG, pen.FG // as in a glyph
	}
	b.WriteString(sgr(pen))
	if !s.term.CursorVisible() {
		b.WriteString("\x1b[?25l")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *screen) drawRow(b *strings.Builder, y, cols int) {
	blank := vt10x.Glyph{Char: ' ', FG: vt10x.DefaultFG, BG: vt10x.DefaultBG}
	end := cols
	for end > 0 {
		g := s.term.Cell(end-1, y)
		if g.Char != 0 && g.Char != ' ' || g.Mode&^blank.Mode != 0 || g.BG != blank.BG {
			break
		}
		end--
	}
	if end == 0 {
		return
	}
	fmt.Fprintf(b, "\x1b[%d;1H", y+1)
	last := ""
	for x := range end {
		g := s.term.Cell(x, y)
		if now := sgr(g); now != last {
			b.WriteString(now)
			last = now
		}
		if g.Char < ' ' {
			g.Char = ' '
		}
		b.WriteRune(g.Char)
	}
	b.WriteString("\x1b[0m")
}

// sgr returns the sequence that selects the look of a glyph.
func sgr(g vt10x.Glyph) string {
	fg, bg := g.FG, g.BG
	codes := "0"
	if g.Mode&attrReverse != 0 {
		fg, bg = bg, fg // the emulator has exchanged them already
		codes += ";7"
	}
	for _, a := range []struct {
		flag int16
		code string
	}{{attrBold, ";1"}, {attrItalic, ";3"}, {attrUnderline, ";4"}, {attrBlink, ";5"}} {
		if g.Mode&a.flag != 0 {
			codes += a.code
		}
	}
	return "\x1b[" + codes + colour(fg, 38) + colour(bg, 48) + "m"
}

func colour(c vt10x.Color, code int) string {
	switch {
	case c >= vt10x.DefaultFG:
		return ""
	case c < 256:
		return fmt.Sprintf(";%d;5;%d", code, c)
	}
	return fmt.Sprintf(";%d;2;%d;%d;%d", code, c>>16&255, c>>8&255, c&255)
}
