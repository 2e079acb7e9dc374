// Package saferegexp bounds the regular expressions that clients send: an expression may
// not expand to more than [MaxSteps] steps, and a search ends with its context. RE2
// needs at most steps × bytes of work for a match, which can still be minutes for a hard
// expression and a long text.
package saferegexp

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

const (
	// MaxSteps bounds what an expression expands to: x{1000} has 1,000 steps.
	MaxSteps = 10_000
	// Piece is the most bytes that are searched at once; [Regexp.Piece] is less
	// for a hard expression.
	Piece = 64 << 10
	// quick is the work, in steps × bytes, that is not worth interrupting: some
	// ten milliseconds.
	quick = 2 << 20
	// askEvery is after how many characters a slow search checks its context.
	askEvery = 256
	// findWork bounds one FindAll, which cannot be interrupted: about a second.
	findWork = 100 * quick
)

// Regexp is a bounded regular expression.
type Regexp struct {
	re    *regexp.Regexp
	steps int
}

// Compile reads an RE2 expression. The error completes "the pattern …".
func Compile(text string) (*Regexp, error) {
	re, steps, err := compile(text)
	if err != nil {
		return nil, err
	}
	return &Regexp{re, steps}, nil
}

func compile(text string) (*regexp.Regexp, int, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, 0, fmt.Errorf("is no RE2 regular expression: %w", err)
	}
	steps := stepsOf(tree)
	if steps > MaxSteps {
		return nil, 0, fmt.Errorf("expands to more than %d steps, which is the limit; use smaller repetitions", MaxSteps)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, 0, fmt.Errorf("is no RE2 regular expression: %w", err)
	}
	return re, steps, nil
}

// Plain reads an RE2 expression of bounded size, for searches that need no end before
// their text's: in lines and short texts. The error completes "the pattern …".
func Plain(text string) (*regexp.Regexp, error) {
	re, _, err := compile(text)
	return re, err
}

// stepsOf estimates the size of the program that an expression becomes. It stops
// counting beyond the limit.
func stepsOf(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n += stepsOf(sub); n > MaxSteps {
			return MaxSteps + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min+1, re.Max, 1)
	}
	return min(n, MaxSteps+1)
}

// Piece is the most bytes that should be searched at once, so that none of
// the methods takes long.
func (r *Regexp) Piece() int { return max(1<<10, min(Piece, quick/r.steps)) }

// MatchString reports whether a short text, such as a path, matches.
func (r *Regexp) MatchString(s string) bool { return r.re.MatchString(s) }

// Match reports whether the text matches. The error is that of ctx.
func (r *Regexp) Match(ctx context.Context, text []byte) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if r.steps*len(text) <= quick {
		return r.re.Match(text), nil
	}
	// A reader is slower, and the only way to interrupt a search.
	in := &runes{ctx: ctx, text: text}
	found := r.re.MatchReader(in)
	return found && in.err == nil, in.err
}

// FindAll returns the places of at most n matches in a text of at most a
// Piece; fewer for a hard expression.
func (r *Regexp) FindAll(text []byte, n int) [][]int {
	work := max(1, r.steps*len(text))
	return r.re.FindAllIndex(text, min(n, max(10, findWork/work)))
}

// runes is a text that ends when its context does.
type runes struct {
	ctx  context.Context // of the one search
	text []byte
	n    int
	err  error
}

// ReadRune implements [io.RuneReader].
func (r *runes) ReadRune() (rune, int, error) {
	if r.n++; r.n%askEvery == 0 && r.err == nil {
		r.err = r.ctx.Err()
	}
	if len(r.text) == 0 || r.err != nil {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.text)
	r.text = r.text[size:]
	return c, size, nil
}
