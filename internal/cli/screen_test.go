package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hinshun/vt10x"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

var small = process.Size{Cols: 20, Rows: 5}

// redraw draws the screen after out on a terminal that starts empty, and
// returns that terminal.
func redraw(t *testing.T, out string) (want, got *screen) {
	t.Helper()
	want = newScreen([]byte(out), small)
	var b bytes.Buffer
	proctest.Must(t, want.draw(&b))
	return want, newScreen(b.Bytes(), small)
}

func TestARedrawnScreenLooksLikeTheOneThatWasThere(t *testing.T) {
	for name, out := range map[string]string{
		"a prompt":                 "$ ls\r\na  b\r\n$ ",
		"colours and attributes":   "\x1b[31mred\x1b[0m \x1b[1;4mbold\x1b[0m \x1b[7mreverse\x1b[0m \x1b[38;5;200mx\x1b[48;2;1;2;3my\x1b[0m",
		"a full-screen program":    "shell\r\n\x1b[?1049h\x1b[2J\x1b[3;4Hhere\x1b[?1h\x1b[?25l",
		"wide use of the width":    strings.Repeat("x", 20) + "y",
		"scrolled":                 "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7",
		"line drawing":             "\x1b(0lqqk\x1b(B",
		"spaces with a background": "\x1b[44m    \x1b[0m",
		"nothing":                  "",
		"utf-8":                    "héllo wörld – ∆",
	} {
		t.Run(name, func(t *testing.T) {
			want, got := redraw(t, out)
			for y := range int(small.Rows) {
				for x := range int(small.Cols) {
					w, g := styled(want.term.Cell(x, y)), styled(got.term.Cell(x, y))
					if w != g {
						t.Fatalf("cell %d,%d looks like %s; want %s", x, y, g, w)
					}
				}
			}
			if w, g := want.term.Cursor(), got.term.Cursor(); w.X != g.X || w.Y != g.Y {
				t.Errorf("the cursor is at %d,%d; want %d,%d", g.X, g.Y, w.X, w.Y)
			}
			const modes = vt10x.ModeAltScreen | vt10x.ModeAppCursor | vt10x.ModeHide
			if w, g := want.term.Mode()&modes, got.term.Mode()&modes; w != g {
				t.Errorf("the modes are %b; want %b", g, w)
			}
		})
	}
}

// look is a glyph as a person sees it: bold makes the first eight colours
// bright, and an empty cell is a space.
func styled(g vt10x.Glyph) string {
	if g.Char < ' ' {
		g.Char = ' '
	}
	if g.Char == ' ' && g.Mode&(attrUnderline|attrReverse) == 0 {
		g.FG, g.Mode = 0, 0
	}
	return fmt.Sprintf("%q %x %d %d", g.Char, g.Mode&^8&^64, g.FG, g.BG)
}

func TestQuestionsInOldOutputAreNotAskedAgain(t *testing.T) {
	s := newScreen([]byte("\x1b[6n\x1b[c\x1b[>c\x1b]11;?\x07hello"), small)
	var b bytes.Buffer
	proctest.Must(t, s.draw(&b))
	for _, q := range []string{"\x1b[6n", "\x1b[c", "\x1b[>c", "]11;?"} {
		if strings.Contains(b.String(), q) {
			t.Errorf("%q is sent to the terminal, whose answer would arrive as typing", q)
		}
	}
}

func TestAnyOutputMakesAScreen(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []byte("\x1b[]();?0123456789hlmABCDHJKLMPXrsu\r\n\t\b\x07\xff\xc3 abc")
	for range 300 {
		out := make([]byte, rng.IntN(2000))
		for i := range out {
			out[i] = alphabet[rng.IntN(len(alphabet))]
		}
		proctest.Must(t, newScreen(out, small).draw(&bytes.Buffer{}))
	}
}

func TestUnfinishedRune(t *testing.T) {
	for in, want := range map[string]int{"": 0, "a": 0, "é": 0, "a\xc3": 1, "\xe2\x88": 2, "\xf0\x9f\x98": 3, "\xff": 0, "\x80\x80\x80\x80": 0} {
		if got := unfinishedRune([]byte(in)); got != want {
			t.Errorf("unfinishedRune(%q) = %d; want %d", in, got, want)
		}
	}
}
