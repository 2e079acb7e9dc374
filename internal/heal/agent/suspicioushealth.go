package agent

import (
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

var (
	healthPath = lazyregexp.New(`(?i)["'` + "`" +
		`]/?(api/)?(health|healthz|livez|readyz|ready|readiness|liveness|live|alive|ping|heartbeat|status|up)["'` + "`" + `/]`)
	calls   = lazyregexp.New(`([A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)\s*\(`)
	answers = lazyregexp.New(`^(if|for|while|switch|catch|return|function|def|func|lambda|await)$|(^|\.)(json|jsonify|send|end|status|writeHead|write|sendStatus|setHeader|header|stringify|dumps|Write|WriteHeader|Response|get|use|all|route|HandleFunc|String|JSON)$`)
)

// healthRules: a health check that answers without asking the program.
func healthRules(f FileDiff, say sayer) {
	lang := languageOf(f.Path)
	if lang != js && lang != py && lang != golang {
		return
	}
	before, after := code(lang, f.Before), code(lang, f.After)
	if b, a := len(healthPath.FindAllString(before, -1)), len(healthPath.FindAllString(after, -1)); a > b {
		say(f.Path, "a route that answers health checks was added")
		return
	}
	was, is := asked(lang, before), asked(lang, after)
	for _, c := range was {
		if !slices.Contains(is, c) && healthPath.MatchString(after) &&
			!slices.ContainsFunc(is, func(s string) bool { return !slices.Contains(was, s) }) {
			say(f.Path, "the health check no longer asks %s", name(c))
			return
		}
	}
}

// asked is what the handlers of health routes call, but for what only answers.
func asked(lang language, s string) (out []string) {
	for _, at := range healthPath.FindAllStringIndex(s, -1) {
		begin := strings.LastIndexByte(s[:at[0]], '\n') + 1
		for _, c := range calls.FindAllStringSubmatch(handler(lang, s[begin:], at[1]-begin), -1) {
			if !answers.MatchString(c[1]) && !slices.Contains(out, c[1]) {
				out = append(out, c[1])
			}
		}
	}
	return out
}

// handler is the line that s begins with, with the block that opens in it after an
// index; in Python with the lines below that are indented.
func handler(lang language, s string, after int) string {
	end := strings.IndexByte(s[after:], '\n')
	if end < 0 {
		return s
	}
	end += after
	if lang != py {
		if open := strings.IndexByte(s[after:end], '{'); open >= 0 {
			open += after + 1
			return s[:max(end, open+len(call(s[open:])))]
		}
		return s[:end]
	}
	if !strings.HasPrefix(s, "@") {
		return s[:end]
	}
	for line := range strings.Lines(s[end+1:]) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") &&
			!strings.HasPrefix(t, "def ") && !strings.HasPrefix(t, "async def ") && !strings.HasPrefix(t, "@") {
			break
		}
		end += len(line)
	}
	return s[:min(end+1, len(s))]
}
