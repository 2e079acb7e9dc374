package view

// ansi takes terminal escape sequences (ECMA-48) out of a stream, byte by
// byte, however it is cut.
type ansi struct {
	state ansiState
	n     int // bytes of the string so far
}

type ansiState uint8

const (
	ground ansiState = iota
	escape           // after ESC
	inter            // ESC and intermediate bytes
	csi              // ESC [
	str              // ESC ], P, X, ^ or _: up to BEL or ESC \
	strEsc           // in such a string, after ESC
)

// longestString bounds a string that has no end: a program that dies within
// one must not hide all that comes after it.
const longestString = 4096

// shows reports whether c is text.
func (a *ansi) shows(c byte) bool {
	switch a.state {
	case ground:
		if c == 0x1b {
			a.state = escape
			return false
		}
		return true
	case escape, inter:
		return a.escaped(c)
	case csi:
		switch {
		case c >= 0x40 && c <= 0x7e:
			a.state = ground
		case c == 0x1b:
			a.state = escape
		case c < 0x20 || c > 0x7e: // no part of a sequence: it was broken off
			a.state = ground
			return c != 0x18 && c != 0x1a
		}
		return false
	case strEsc:
		if c == '\\' {
			a.state = ground
			return false
		}
		return a.escaped(c)
	}
	// In a string.
	a.n++
	switch {
	case c == 0x07 || c == 0x18 || c == 0x1a:
		a.state = ground
	case c == 0x1b:
		a.state = strEsc
	case c == '\n' || a.n > longestString:
		a.state = ground
		return true
	}
	return false
}

// escaped takes a byte after ESC.
func (a *ansi) escaped(c byte) bool {
	switch {
	case c == 0x1b:
		a.state = escape
	case a.state != inter && c == '[':
		a.state = csi
	case a.state != inter && (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_'):
		a.state, a.n = str, 0
	case c >= 0x20 && c <= 0x2f:
		a.state = inter
	case c < 0x20 || c > 0x7e:
		a.state = ground
		return c != 0x18 && c != 0x1a
	default:
		a.state = ground
	}
	return false
}
