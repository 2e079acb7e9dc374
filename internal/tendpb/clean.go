package tendpb

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds what is kept of a text of the other side, in bytes.
const maxText = 16 << 10

// CleanText makes a text of the server fit for a terminal: what could move the
// cursor, change what is shown or turn the direction of writing is replaced. The
// lines of a message stay.
func CleanText(s string) string {
	return clean(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

// CleanName is CleanText for what is on one line.
func CleanName(s string) string { return clean(s, func(rune) bool { return false }) }

func clean(s string, keep func(rune) bool) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if Active(r) && !keep(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Active reports whether a terminal does something with a character besides
// showing it.
func Active(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || r == '\ufeff'
}
