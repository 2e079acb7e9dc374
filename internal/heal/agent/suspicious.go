package agent

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

const maxReasons = 20

// Suspicious says why a change may only silence a symptom, by rules: a removed check or
// assertion, a swallowed exception, a removed route or removed work, emptied data,
// discarded uncommitted work, and others. Each reason begins with a path and contains no
// value of a variable. No reason means that nothing was found.
//
// Rules compare how often something is there before and after, in all files together: what
// was moved is not gone. A file that is now as it was committed is only held to whether
// somebody's work was lost by it.
func Suspicious(change []FileDiff) (reasons []string) {
	say := func(path, format string, args ...any) {
		if s := path + ": " + fmt.Sprintf(format, args...); len(reasons) < maxReasons && !slices.Contains(reasons, s) {
			reasons = append(reasons, s)
		}
	}
	var rest []FileDiff
	for _, f := range change {
		f.Path = name(f.Path)
		if dir := installed(f.Path); dir != "" {
			say(f.Path, "what is below %s was installed, and is not to be edited", dir)
			continue
		}
		if f.AtHead && !f.Deleted {
			if f.Dirty && !f.Added && losesWork(f.Before, f.After, f.Named) {
				say(f.Path, "uncommitted work was thrown away: the file was set back to what was committed")
			}
			continue
		}
		rest = append(rest, f)
	}
	for _, f := range rest {
		switch {
		case isEnv(f.Path):
			envRules(f, say)
			continue
		case f.Deleted && testFile.MatchString(f.Path):
			say(f.Path, "a test was deleted")
			continue
		case f.Deleted && !scratch.MatchString(f.Path):
			say(f.Path, "the file was deleted")
		}
		if testFile.MatchString(f.Path) {
			testRules(f, say)
			continue
		}
		dataRules(f, say)
		limitRules(f, say)
		healthRules(f, say)
		shrinkRules(f, say)
	}
	countRules(rest, say)
	definitionRules(rest, say)
	return reasons
}

type sayer func(path, format string, args ...any)

// scratch are files that may go.
var scratch = lazyregexp.New(`(?i)\.(tmp|bak|orig|rej|log|pid|lock|swp)$|(^|/)(\.cache|tmp|temp|dist|build|\.next|out|coverage)/`)

// losesWork says whether a line that was complete is gone. What was begun and not
// finished (a bracket or a quote is open, a value is missing) may go: it is what broke the
// file. So may a slip of a key or two within a line, a number, or whether something is on:
// there is no other way to take back a wrong one. And so may a line that the error names.
func losesWork(before, after string, named []string) bool {
	for _, h := range hunks(before, after) {
		for _, line := range h.removed {
			same := func(s string) bool {
				return slip(line, s) || literal.ReplaceAllString(s, "0") == literal.ReplaceAllString(line, "0")
			}
			if complete(line) && !slices.Contains(named, line) && !slices.ContainsFunc(h.added, same) {
				return true
			}
		}
	}
	return false
}

var literal = lazyregexp.New(`-?\b\d+(\.\d+)?\b|\b(true|false|null|True|False|None)\b`)

// maxSlip is how many letters and digits of a line may be wrong without being work.
const maxSlip = 2

// slip says whether a line has no more than a slip that another one does not have: signs,
// and a few letters within a word. A whole word is work.
func slip(line, other string) bool {
	a, b := []rune(line), []rune(other)
	from, to := 0, len(a)
	for from < to && from < len(b) && a[from] == b[from] {
		from++
	}
	for b = b[from:]; to > from && len(b) > 0 && a[to-1] == b[len(b)-1]; to-- {
		b = b[:len(b)-1]
	}
	word := func(i int) bool { return i >= 0 && i < len(a) && (unicode.IsLetter(a[i]) || unicode.IsDigit(a[i])) }
	letters := 0
	for i := from; i < to; i++ {
		if !word(i) {
			continue
		}
		begin := i
		for i+1 < to && word(i+1) {
			i++
		}
		letters += i + 1 - begin
		if !word(begin-1) && !word(i+1) {
			return false
		}
	}
	return letters <= maxSlip
}

// unfinished is the end of a line that waits for a value or a name.
var unfinished = lazyregexp.New(`(?:=|[^=]=>|[+*&|]|\b(?:const|let|var|import|from|new|function|def|class|await|extends|typeof|instanceof|lambda|elif))\s*;?$`)

func complete(line string) bool {
	if len(line) < 4 || unfinished.MatchString(line) || strings.HasPrefix(line, "<<<<<<<") || strings.HasPrefix(line, ">>>>>>>") ||
		strings.HasPrefix(line, "=======") {
		return false
	}
	var open []rune
	var quote rune
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'' || r == '`':
			quote = r
		case r == '(' || r == '[' || r == '{':
			open = append(open, r)
		case r == ')' || r == ']' || r == '}':
			if len(open) == 0 {
				return false
			}
			open = open[:len(open)-1]
		}
	}
	return quote == 0 && len(open) == 0 && strings.IndexFunc(line, func(r rune) bool {
		return r >= 'a' && r <= 'z' ||
			r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}) >= 0
}
