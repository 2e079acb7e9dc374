package run

import (
	"strings"
	"testing"
)

func TestTheLastLineIsKnownHoweverOutputIsCut(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"a\nb":                     "b",
		"a\nb\n":                   "b",
		"a\nb\n\n \n":              "b",
		"10%\r20%\r":               "20%",
		"a\r\nb\r\n":               "b",
		strings.Repeat("x", 10000): strings.Repeat("x", maxLine),
	} {
		for _, size := range []int{1, 2, 3, 100000} {
			var l lastLine
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				l.add([]byte(rest[:n]))
				rest = rest[n:]
			}
			if string(l.line) != want {
				t.Errorf("%.30q in pieces of %d: got %.30q", text, size, l.line)
			}
		}
	}
}
