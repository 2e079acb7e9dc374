package observe

import (
	"testing"

	"github.com/tend-run/tend/process"
)

func TestMatcher(t *testing.T) {
	tests := []struct {
		name   string
		expr   string
		chunks []string
		want   string
		offset int64
	}{
		{"finds a match in one line", `port (\d+)`, []string{"hello\nport 80\n"}, "port 80", 6},
		{"finds a match that chunks cut", `port (\d+)`, []string{"hello\npo", "rt 8", "0\n"}, "port 80", 6},
		{"lets the end of a line decide", `1$`, []string{"code 1", "2\ncode 1\n"}, "1", 13},
		{"does not join lines", `a.b`, []string{"a\nb\n"}, "", 0},
		{"ignores the carriage return of a terminal", `ready$`, []string{"ready\r\n"}, "ready", 0},
		{"takes a prompt without a newline once it settles", `word: $`, []string{"Pass", "word: "}, "word: ", 4},
		{"matches an empty line", `^$`, []string{"x\n", "\n"}, "", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := newMatcher(tt.expr)
			if err != nil {
				t.Fatal(err)
			}
			var got finding
			found, at := false, int64(0)
			for _, c := range tt.chunks {
				if got, found = m.write(process.Stdout, at, []byte(c)); found {
					break
				}
				at += int64(len(c))
			}
			if !found {
				got, found = m.settle()
			}
			if got.text != tt.want || got.offset != tt.offset {
				t.Errorf("got %q at %d (found %v), want %q at %d", got.text, got.offset, found, tt.want, tt.offset)
			}
		})
	}
}
