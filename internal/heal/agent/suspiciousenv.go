package agent

import (
	"path"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

func isEnv(p string) bool {
	base := strings.ToLower(path.Base(p))
	return base == ".env" || strings.HasPrefix(base, ".env.") || strings.HasSuffix(base, ".env")
}

var (
	envLine  = lazyregexp.New(`(?m)^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=[ \t]*(.*?)[ \t\r]*$`)
	secretly = lazyregexp.New(`(?i)key|secret|token|passw|credential|private|salt|dsn`)
	madeUp   = lazyregexp.New(`(?i)^["']?(x+|\*+|0+|1234\w*|test\w*|dummy\w*|fake\w*|foo\w*|none|null|todo|secret\w*|password\w*|key|token|admin|example\w*|placeholder\w*|change[-_]?(me|this|it)\w*|your[-_ ]?\w*|my[-_ ]?\w*|some[-_ ]?\w*|insert[-_ ]?\w*|default\w*|abc\w*)["']?$`)
)

func variables(s string) map[string]string {
	out := map[string]string{}
	for _, m := range envLine.FindAllStringSubmatch(s, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// envRules: variables may be added; those that are there are somebody's.
func envRules(f FileDiff, say sayer) {
	before, after := variables(f.Before), variables(f.After)
	names := map[string]bool{}
	for n := range before {
		names[n] = true
	}
	for n := range after {
		names[n] = true
	}
	for _, n := range ordered(names) {
		old, was := before[n]
		now, is := after[n]
		switch {
		case was && !is:
			say(f.Path, "%s was removed", n)
		case was && old != "" && old != now:
			say(f.Path, "the value of %s was replaced", n)
		case now != old && secretly.MatchString(n) && madeUp.MatchString(now):
			say(f.Path, "%s was given a value that is made up", n)
		}
	}
}
