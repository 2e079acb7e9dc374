package observe

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func mustMatcher(t *testing.T, expr string) *Matcher {
	t.Helper()
	m := proctest.Value(NewMatcher(expr))(t)
	return m
}

func TestMatcher(t *testing.T) {
	tests := []struct {
		name   string
		expr   string
		chunks []string
		settle bool // the output stands still after the chunks
		want   *Found
	}{
		{name: "finds a match in a line", expr: `port (\d+)`, chunks: []string{"hello\nport 80\n"}, want: &Found{Offset: 6, Text: "port 80"}},
		{name: "finds a match that chunks cut", expr: `port (\d+)`, chunks: []string{"hello\npo", "rt 8", "0\n"}, want: &Found{Offset: 6, Text: "port 80"}},
		{name: "lets the end of the line decide", expr: `code 1$`, chunks: []string{"code 1", "2\ncode 1\n"}, want: &Found{Offset: 8, Text: "code 1"}},
		{name: "does not join lines", expr: `a.b`, chunks: []string{"a\nb\n"}},
		{name: "anchors at the start of each line", expr: `^b`, chunks: []string{"ab\nb\n"}, want: &Found{Offset: 3, Text: "b"}},
		{name: "takes the carriage return of a terminal for part of the line end", expr: `ready$`, chunks: []string{"ready\r", "\n"}, want: &Found{Text: "ready"}},
		{name: "keeps a carriage return within a line", expr: "1%\r2%", chunks: []string{"1%\r2%\n"}, want: &Found{Text: "1%\r2%"}},
		{name: "keeps escape sequences", expr: "\x1b\\[1mok", chunks: []string{"\x1b[1m", "ok\n"}, want: &Found{Text: "\x1b[1mok"}},
		{name: "matches an empty line", expr: `^$`, chunks: []string{"x\n", "\n"}, want: &Found{Offset: 2}},
		{name: "leaves an unfinished line alone while it grows", expr: `login:`, chunks: []string{"host login: "}},
		{name: "takes an unfinished line when it stands still", expr: `login: $`, chunks: []string{"host lo", "gin: "}, settle: true, want: &Found{Offset: 5, Text: "login: "}},
		{name: "does not take an empty unfinished line for a line", expr: `^$`, chunks: []string{"x\n"}, settle: true},
		{name: "searches bytes that are no text", expr: `b`, chunks: []string{"\xff\xfeb\n"}, want: &Found{Offset: 2, Text: "b"}},
		{name: "finds a match in the middle of a line longer than a window", expr: `needle`,
			chunks: []string{strings.Repeat("x", window-3), "needle", strings.Repeat("y", window), "\n"},
			want:   &Found{Offset: window - 3, Text: "needle"}},
		{name: "finds a match at the end of a line of many windows", expr: `needle$`,
			chunks: []string{strings.Repeat("x", 5*window) + "needle\n"}, want: &Found{Offset: 5 * window, Text: "needle"}},
		{name: "returns at most 4 KiB of a match", expr: `x+`, chunks: []string{strings.Repeat("x", 9000) + "\n"},
			want: &Found{Text: strings.Repeat("x", maxText)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustMatcher(t, tt.expr)
			var got *Found
			at := int64(0)
			for _, c := range tt.chunks {
				if f, ok := m.Add(process.Stdout, at, []byte(c)); ok && got == nil {
					got = &f
				}
				at += int64(len(c))
			}
			if f, ok := m.Settle(process.Stdout); tt.settle && ok && got == nil {
				got = &f
			}
			if tt.want != nil {
				tt.want.Stream = process.Stdout
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatcherFindsTheSameHoweverOutputIsCut(t *testing.T) {
	text := "one\ntwo two\r\nthree 33\nfour"
	want := Found{Stream: process.Stderr, Offset: 19, Text: "33"}
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			m := mustMatcher(t, `\d+`)
			var got Found
			at := int64(0)
			for _, c := range []string{text[:i], text[i:j], text[j:]} {
				if f, ok := m.Add(process.Stderr, at, []byte(c)); ok {
					got = f
				}
				at += int64(len(c))
			}
			if got != want {
				t.Fatalf("cut at %d and %d: got %+v; want %+v", i, j, got, want)
			}
		}
	}
}

func TestMatcherKeepsStreamsApart(t *testing.T) {
	m := mustMatcher(t, "ab")
	m.Add(process.Stdout, 0, []byte("a"))
	if f, ok := m.Add(process.Stderr, 0, []byte("b\n")); ok {
		t.Errorf("found %+v in two streams", f)
	}
	if _, ok := m.Add(process.Stdout, 1, []byte("b\n")); !ok {
		t.Error("the line of stdout was lost when stderr came")
	}
}

func TestMatcherForgetsTheLineBeforeAGap(t *testing.T) {
	m := mustMatcher(t, "ab")
	m.Add(process.Stdout, 0, []byte("a"))
	m.Skip(process.Stdout)
	if f, ok := m.Add(process.Stdout, 100, []byte("b\nab\n")); !ok || f.Offset != 102 {
		t.Errorf("found %+v, %v; want the line at 102", f, ok)
	}
}

func TestAPatternThatExpandsTooFarIsRefused(t *testing.T) {
	_, err := NewMatcher(strings.Repeat("[^a]{900}", 12))
	if e, ok := errors.AsType[*process.InvalidError](err); !ok || e.Field != "match" || !strings.Contains(e.Reason, "expands to more than 10000 steps") {
		t.Errorf("got %v", err)
	}
}

func TestNewMatcherNamesTheField(t *testing.T) {
	_, err := NewMatcher("a(")
	if e, ok := err.(*process.InvalidError); !ok || e.Field != "match" {
		t.Errorf("got %v; want an InvalidError of match", err)
	}
}
