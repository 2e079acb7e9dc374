package agent

import (
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// shrinkRules: most of a program is gone.
func shrinkRules(f FileDiff, say sayer) {
	lang := languageOf(f.Path)
	if f.Deleted || lang != js && lang != py && lang != golang || strings.Contains(f.Before, "\n<<<<<<< ") {
		return
	}
	lines := func(s string) (n int) {
		for line := range strings.Lines(code(lang, s)) {
			if strings.TrimSpace(line) != "" {
				n++
			}
		}
		return n
	}
	if b, a := lines(f.Before), lines(f.After); b-a >= 5 && a*2 < b {
		say(f.Path, "most of the file was removed: %d lines of %d are left", a, b)
	}
}

var (
	defined = map[language]*lazyregexp.Regexp{
		js:     lazyregexp.New(`(?m)\bexports\.(\w+)\s*=[^=]|\bexport\s+(?:default\s+)?(?:async\s+)?(?:function\*?|class|const|let|var)\s+(\w+)|^\s*(?:async\s+)?function\*?\s+(\w+)|^(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)`),
		py:     lazyregexp.New(`(?m)^\s*(?:async\s+)?def\s+(\w+)|^class\s+(\w+)`),
		golang: lazyregexp.New(`(?m)^func\s+(?:\([^)]*\)\s*)?(\w+)|^type\s+(\w+)`),
	}
	constants = map[language]*lazyregexp.Regexp{
		js: lazyregexp.New(`(?m)(?:\bexports\.|\b(?:const|let|var)\s+)(\w+)\s*=\s*(?:async\s*)?(?:\([^)]*\)|\w+)\s*=>\s*(?:\{\s*(?:return(?:\s+` +
			constant + `)?\s*;?)?\s*\}|` + constant + `)\s*(?:;|$)|\bfunction\s+(\w+)\s*\([^)]*\)\s*\{\s*(?:return(?:\s+` + constant +
			`)?\s*;?)?\s*\}|\bexports\.(\w+)\s*=\s*(?:async\s+)?function\s*\w*\s*\([^)]*\)\s*\{\s*(?:return(?:\s+` + constant + `)?\s*;?)?\s*\}`),
		py: lazyregexp.New(`(?m)^[ \t]*(?:async\s+)?def\s+(\w+)\s*\([^)]*\)[^:\n]*:\s*(?:(?:"""[^"]*"""|'[^'\n]*')\s*)?(?:pass|\.\.\.|return(?:[ \t]+` + constant + `)?)[ \t]*(?:\n[ \t]*)*(?:\n\S|$)`),
		// Of Go, methods and functions that return nothing but zero values.
		golang: lazyregexp.New(`(?m)^func\s+(?:\([^)]*\)\s*)?(\w+)\s*\([^)]*\)[^{\n]*\{\s*(?:return(?:\s+` + constant +
			`(?:\s*,\s*` + constant + `)*)?)?\s*\}`),
	}
)

// definitionRules: what is no longer defined anywhere, and functions that have become
// constants.
func definitionRules(files []FileDiff, say sayer) {
	still := map[string]bool{}
	for _, f := range files {
		lang := languageOf(f.Path)
		for n := range found(defined[lang], code(lang, f.After)) {
			still[n] = true
		}
	}
	for _, f := range files {
		lang := languageOf(f.Path)
		if defined[lang] == nil || testFile.MatchString(f.Path) {
			continue
		}
		before, after := code(lang, f.Before), code(lang, f.After)
		was := found(defined[lang], before)
		for _, n := range ordered(was) {
			if !still[n] && !f.Deleted {
				say(f.Path, "%s is no longer defined", n)
			}
		}
		constantBefore := found(constants[lang], before)
		for _, n := range ordered(found(constants[lang], after)) {
			if was[n] && !constantBefore[n] {
				say(f.Path, "%s does nothing any more, or always gives the same", n)
			}
		}
	}
}

func found(re *lazyregexp.Regexp, s string) map[string]bool {
	out := map[string]bool{}
	if re == nil {
		return out
	}
	for _, m := range re.FindAllStringSubmatch(s, -1) {
		for _, n := range m[1:] {
			if n != "" {
				out[n] = true
			}
		}
	}
	return out
}
