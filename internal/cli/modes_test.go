package cli

import (
	"strings"
	"testing"
)

func TestModesAreFollowedHoweverTheOutputIsCut(t *testing.T) {
	for _, tt := range []struct{ name, out, want string }{
		{"an alternate screen", "\x1b[?1049h", "\x1b[?1049l"},
		{"an old alternate screen, with other modes", "\x1b[?25;47;7h", "\x1b[?47l"},
		{"one that was left", "\x1b[?1049hx\x1b[?1049l", ""},
		{"one that a reset left", "\x1b[?1049h\x1bc", ""},
		{"a scrolled part", "\x1b[3;9r", "\x1b7\x1b[r\x1b8"},
		{"one that was given up", "\x1b[3;9r\x1b[r", ""},
		{"modes of the keyboard", "\x1b[>1u\x1b[>5u\x1b[<u", "\x1b[<u"},
		{"a sequence that was broken off", "\x1b]0;title", "\x1b\\"},
		{"a title that looks like a mode", "\x1b]0;[?1049h\x07x", ""},
		{"a broken sequence before a mode", "\x1b[12\x1b[?1049h", "\x1b[?1049l"},
	} {
		for cut := range len(tt.out) + 1 {
			var m leftModes
			m.follow([]byte(tt.out[:cut]))
			m.follow([]byte(tt.out[cut:]))
			var b strings.Builder
			m.end(&b)
			if got, ok := strings.CutSuffix(b.String(), harmless); !ok || got != tt.want {
				t.Errorf("%s, cut at %d: %q; want %q", tt.name, cut, b.String(), tt.want)
			}
		}
	}
	for _, quiet := range []string{"", "plain text\r\n", "wide 日本\x07"} {
		var m leftModes
		m.follow([]byte(quiet))
		var b strings.Builder
		if m.end(&b); b.Len() > 0 {
			t.Errorf("after %q: %q", quiet, b.String())
		}
	}
}

func TestWideCharactersAlign(t *testing.T) {
	lines := alignRows([][]string{{"NAME", "X"}, {"日本", "1"}, {"é", "2"}, {"é", "3"}, {"👩‍💻", "4"}})
	for i, want := range []string{"NAME  X", "日本  1", "é     2", "é     3", "👩‍💻    4"} {
		if lines[i] != want {
			t.Errorf("%q; want %q", lines[i], want)
		}
	}
	if got := cut("日本語", 5); got != "日本" {
		t.Errorf("cut = %q", got)
	}
}
