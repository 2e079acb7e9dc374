package saferegexp

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestCompileRefusesWhatExpandsTooFar(t *testing.T) {
	for _, text := range []string{
		"x{1000}", `\w+@\w+\.(com|org)`, "(?i)error|warn", "(a{10}){10}", "", "a{0}", "(?:){1000}", ".*", strings.Repeat("a", 4096),
	} {
		if _, err := Compile(text); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	for _, text := range []string{
		"((a{100}){100}){100}", "(x{1000}){10}y", "(((((a{0,9}){0,9}){0,9}){0,9}){0,9})", "(abcdefghijkl){1000,}", "(", strings.Repeat("(a|", 2000) + strings.Repeat(")", 2000),
		strings.Repeat("a", MaxSteps+1),
	} {
		if _, err := Compile(text); err == nil {
			t.Errorf("%.40q is taken", text)
		}
	}
}

func TestAHardSearchEndsWithItsContext(t *testing.T) {
	re := proctest.Value(Compile("(x+x+)+y{900}|(?:[xz]?){900}[xz]{900}!"))(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("the client left")) })
	// It would take hours.
	if found, err := re.Match(ctx, bytes.Repeat([]byte("x"), 1<<30)); found || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", found, err)
	}
}

// FuzzMatch: an expression that is taken answers as that of the standard
// library, on either way.
func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{{"a+b", "aab"}, {"^é$", "é"}, {`\bx\b`, "a x b"}, {"(a{2,3}){4}|", "aaaaaaaa"}, {"[^\xff]", "\xff\xfe"}} {
		f.Add(s[0], []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, text string, in []byte) {
		if len(text) > 200 || len(in) > 1000 {
			return
		}
		re, err := Compile(text)
		if err != nil {
			return
		}
		want := regexp.MustCompile(text).Match(in)
		if got, err := re.Match(t.Context(), in); got != want || err != nil {
			t.Errorf("%q in %q: %v, %v", text, in, got, err)
		}
		if got := re.re.MatchReader(&runes{ctx: t.Context(), text: in}); got != want {
			t.Errorf("%q in %q by reader: %v", text, in, got)
		}
		if re.Piece() < 1<<10 || re.Piece() > Piece {
			t.Errorf("a piece of %d bytes", re.Piece())
		}
		re.FindAll(in, 1000)
	})
}
