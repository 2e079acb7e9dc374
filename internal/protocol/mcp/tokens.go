package mcp

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Bounds of what callers ask for. What is outside is set to the nearest, and told.
const (
	defaultTokens = 2000
	minTokens     = 100
	maxTokens     = 50_000

	defaultWait = 30 * time.Second
	maxWait     = time.Hour
)

// cost is how many tokens a text is taken for, in thirds: a letter of ASCII is a third,
// a control character (\n apart) and anything else a whole one. Models count less for
// most texts, and hardly more for any.
func cost(text string) int {
	n := 0
	for _, c := range text {
		if c == '\n' || c == '\t' || c >= ' ' && c < utf8.RuneSelf {
			n++
		} else {
			n += 3
		}
	}
	return n
}

// tokens is cost in whole tokens.
func tokens(text string) int { return (cost(text) + 2) / 3 }

// notes are sentences for the end of an answer.
type notes []string

func (n *notes) add(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

// clamp returns v between least and most, or otherwise for 0, and notes what it changed.
func clamp(n *notes, field string, v, otherwise, least, most int) int {
	if v == 0 {
		return otherwise
	}
	if got := max(least, min(v, most)); got != v {
		n.add("%s was %d; %d to %d are allowed, and %d was used.", field, v, least, most, got)
		return got
	}
	return v
}

// allowance is the tokens that an answer may have.
func allowance(n *notes, asked int) int {
	return clamp(n, "max_tokens", asked, defaultTokens, minTokens, maxTokens)
}

// cutTo returns the beginning of text that costs at most so many thirds.
func cutTo(text string, thirds int) string {
	for i, c := range text {
		if thirds -= cost(string(c)); thirds < 0 {
			return text[:i]
		}
	}
	return text
}
