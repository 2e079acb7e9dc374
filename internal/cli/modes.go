package cli

import (
	"io"
	"strings"
)

// leftModes follows the output of a terminal program for what has to be undone
// when it is killed or left. nil follows nothing.
type leftModes struct {
	state    byte // of the sequence that is being read
	args     []byte
	alt      string // the mode by which it switched to the alternate screen
	region   bool   // it scrolls a part of the screen
	pushed   int    // keyboard modes of the kitty protocol
	switched bool   // it has sent any sequence at all
}

// harmless ends modes that a terminal may have switched off already: mouse,
// focus reports, bracketed paste, application keys, synchronized output, keys
// reported with their modifiers, insert mode; and it brings back wrapping, the
// cursor and its shape, letters and colours.
const harmless = "\x1b[?9l\x1b[?1000l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l" +
	"\x1b[?2004l\x1b[?2026l\x1b[?1l\x1b>\x1b[>4m\x1b[4l\x1b[?7h\x1b[?25h\x1b[0 q\x1b(B\x0f\x1b[0m"

// States of a sequence.
const (
	plainText = iota
	escape
	csi
	otherString // OSC, DCS and the like: up to BEL or ESC \
	otherEscape
	charset
)

// Write makes it a writer that follows what passes.
func (m *leftModes) Write(b []byte) (int, error) {
	m.follow(b)
	return len(b), nil
}

func (m *leftModes) follow(out []byte) {
	if m == nil {
		return
	}
	for _, c := range out {
		switch m.state {
		case plainText:
			if c == 0x1b {
				m.state, m.switched = escape, true
			}
		case escape:
			m.escaped(c)
		case charset:
			m.state = plainText
		case csi:
			switch {
			case c >= 0x40 && c <= 0x7e:
				m.sequence(string(m.args), c)
				m.state = plainText
			case c == 0x1b:
				m.state = escape
			case c == 0x18 || c == 0x1a:
				m.state = plainText
			case len(m.args) < 64:
				m.args = append(m.args, c)
			}
		case otherString:
			if c == 0x07 || c == 0x18 || c == 0x1a {
				m.state = plainText
			} else if c == 0x1b {
				m.state = otherEscape
			}
		case otherEscape:
			if m.state = plainText; c != '\\' {
				m.escaped(c)
			}
		}
	}
}

func (m *leftModes) escaped(c byte) {
	m.state = plainText
	switch c {
	case '[':
		m.state, m.args = csi, m.args[:0]
	case ']', 'P', 'X', '^', '_':
		m.state = otherString
	case '(', ')', '*', '+', '#', ' ':
		m.state = charset
	case 0x1b:
		m.state = escape
	case 'c': // reset
		m.alt, m.region, m.pushed = "", false, 0
	}
}

// sequence takes note of CSI args final.
func (m *leftModes) sequence(args string, final byte) {
	switch {
	case (final == 'h' || final == 'l') && strings.HasPrefix(args, "?"):
		for _, mode := range strings.Split(args[1:], ";") {
			if mode == "47" || mode == "1047" || mode == "1049" {
				if m.alt = ""; final == 'h' {
					m.alt = mode
				}
			}
		}
	case final == 'r' && !strings.HasPrefix(args, "?"):
		m.region = args != "" && args != ";"
	case final == 'p' && args == "!":
		m.region = false
	case final == 'u' && strings.HasPrefix(args, ">"):
		m.pushed++
	case final == 'u' && strings.HasPrefix(args, "<"):
		m.pushed = max(0, m.pushed-1)
	}
}

// end undoes what was left. A program that sent no sequence has left nothing.
func (m *leftModes) end(w io.Writer) {
	if m == nil || !m.switched {
		return
	}
	var b strings.Builder
	if m.state != plainText {
		b.WriteString("\x1b\\") // ends a sequence that was broken off
	}
	for range min(m.pushed, 16) {
		b.WriteString("\x1b[<u")
	}
	if m.region {
		b.WriteString("\x1b7\x1b[r\x1b8") // which moves the cursor
	}
	if m.alt != "" {
		b.WriteString("\x1b[?" + m.alt + "l")
	}
	b.WriteString(harmless)
	io.WriteString(w, b.String()) // a terminal that is gone needs nothing
}
