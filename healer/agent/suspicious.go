package agent

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const maxReasons = 20

// Suspicious says why a change may only silence a symptom, by rules: a check or
// an assertion that is gone, an exception that is swallowed, a route or work that
// was taken out, data that was emptied, uncommitted work that was thrown away, and
// others. Each reason begins with a path and holds no value of a variable. None
// means that nothing was found.
//
// Rules compare how often something is there before and after, in all files
// together: what was moved is not gone. A file that is now as it was committed is only
// held to whether somebody's work was lost by it.
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
			if f.Dirty && !f.Added && losesWork(f.Before, f.After) {
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
var scratch = regexp.MustCompile(`(?i)\.(tmp|bak|orig|rej|log|pid|lock|swp)$|(^|/)(\.cache|tmp|temp|dist|build|\.next|out|coverage)/`)

// losesWork says whether a line that was complete is gone. What was begun and not
// finished (a bracket or a quote is open) may go: it is what broke the file. So may a
// number, or whether something is on: there is no other way to take back a wrong one.
func losesWork(before, after string) bool {
	for _, h := range hunks(before, after) {
		for _, line := range h.removed {
			same := func(s string) bool { return literal.ReplaceAllString(s, "0") == literal.ReplaceAllString(line, "0") }
			if complete(line) && !slices.ContainsFunc(h.added, same) {
				return true
			}
		}
	}
	return false
}

var literal = regexp.MustCompile(`-?\b\d+(\.\d+)?\b|\b(true|false|null|True|False|None)\b`)

func complete(line string) bool {
	if len(line) < 4 || strings.HasPrefix(line, "<<<<<<<") || strings.HasPrefix(line, ">>>>>>>") || strings.HasPrefix(line, "=======") {
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
	return quote == 0 && len(open) == 0 && strings.IndexFunc(line, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }) >= 0
}

// counted is something whose number must not fall, or not grow.
type counted struct {
	in    []language
	re    *regexp.Regexp
	grows bool // it must not grow
	raw   bool // comments count
	why   string
}

func gone(in []language, why, re string) counted {
	return counted{in: in, re: regexp.MustCompile(re), why: why}
}

func grown(in []language, why, re string) counted {
	return counted{in: in, re: regexp.MustCompile(re), grows: true, why: why}
}

func marks(in []language, why, re string) counted {
	return counted{in: in, re: regexp.MustCompile(re), grows: true, raw: true, why: why}
}

var (
	inJS   = []language{js}
	inPy   = []language{py}
	inGo   = []language{golang}
	inCode = []language{js, py, golang}
)

const constant = `(?:-?\d+|null|undefined|void 0|true|false|None|True|False|nil|''|""|` + "``" + `|\{\s*\}|\[\s*\]|\(\s*\{\s*\}\s*\))`

var rules = []counted{
	gone(inJS, "a check that throws was removed", `\bthrow\b`),
	gone(inPy, "a check that raises was removed", `\braise\b`),
	gone(inJS, "an assertion was removed", `\bassert\w*(\.\w+)*\s*\(`),
	gone(inPy, "an assertion was removed", `(?m)^\s*assert\b`),
	gone(inGo, "an error is no longer checked", `\berr\s*!=\s*nil\b`),
	gone(inCode, "the program no longer ends where it did", `\bprocess\.(exit|abort)\s*\(|\bsys\.exit\s*\(|\bos\._exit\s*\(|\bos\.Exit\(|\blog\.Fatal\w*\(|\bpanic\(`),
	gone(inJS, "work that the program did was removed", `\bset(Interval|Timeout|Immediate)\s*\(|\.(start|schedule|listen|subscribe|connect|poll|watch|process|consume)\s*\(|\bcron\.\w+\(`),
	gone(inPy, "work that the program did was removed", `\.(start|run|add_job|submit|serve_forever|create_task|subscribe|connect|listen)\s*\(|\bensure_future\(|\bThread\(|@\w+\.(task|scheduled_job|on_event)\b`),
	gone(inGo, "work that the program did was removed", `\bgo\s+(func\b|[\w.]+\()|\btime\.(NewTicker|AfterFunc|Tick)\(|\bListenAndServe\w*\(|\.(Start|Run|Serve|Subscribe)\(`),
	gone(inJS, "a route was removed", `\b(app|router|server|fastify|api|route)\s*\.\s*(get|post|put|delete|patch|all|use|route)\s*\(|\b(req|request|url|u|ctx)\.(url|path|pathname)\s*===?\s*['"`+"`"+`]`),
	gone(inPy, "a route was removed", `@\w+\.(route|get|post|put|delete|patch|websocket)\(|\b(add_url_rule|add_api_route|add_route)\(|\bpath\(\s*['"]|['"]/[\w/-]*['"]\s*:\s*(lambda|\w)`),
	gone(inGo, "a route was removed", `\.(HandleFunc|Handle|GET|POST|PUT|DELETE|PATCH|Get|Post|Put|Delete|Patch)\(\s*"`),
	gone(inJS, "a module is no longer loaded", `\brequire\(\s*['"][^'"]+['"]\s*\)|\bfrom\s+['"][^'"]+['"]|\bimport\s*\(?\s*['"][^'"]+['"]`),
	gone(inPy, "a module is no longer loaded", `(?m)^\s*(from\s+\S+\s+import\s+\S|import\s+\S)`),

	grown(inJS, "an exception is swallowed", `\bcatch\s*(\([^)]*\))?\s*\{\s*(return(\s+`+constant+`)?\s*;?|continue\s*;?|void 0;?|;)?\s*\}`),
	grown(inJS, "a rejection is swallowed", `\.catch\(\s*(noop|_\.noop|Boolean|\(\s*\)\s*=>\s*|\(\s*\w+\s*\)\s*=>\s*|\w+\s*=>\s*|(async\s+)?function\s*\w*\s*\([^)]*\)\s*)(\{\s*(return(\s+`+constant+`)?\s*;?)?\s*\}|`+constant+`)?\s*\)`),
	grown(inPy, "an exception is swallowed", `(?m)^[ \t]*except\b[^\n]*:\s*(pass|\.\.\.)[ \t]*(\n|$)`),
	grown(inPy, "an exception is swallowed", `(?m)^[ \t]*except\s*((\(\s*)?(Base)?Exception\b[^\n]*)?:\s*(continue|return(\s+`+constant+`)?)[ \t]*(\n|$)`),
	grown(inPy, "an exception is swallowed", `\bsuppress\(\s*(Base)?Exception\b`),
	grown(inPy, "errors of the whole process are ignored", `\bsys\.excepthook\s*=|\.set_exception_handler\(`),
	grown(inGo, "a panic is swallowed", `\brecover\(\)`),
	grown(inGo, "an error is thrown away", `(^|[\s;{])_\s*=\s*[\w.]+\(|,\s*_\s*:?=\s*[\w.]+\(`),
	grown(inGo, "an error is swallowed", `\berr\s*!=\s*nil\s*\{\s*(return(\s+nil)?\s*;?|continue\s*;?)?\s*\}`),
	grown(inCode, "a condition was turned off", `\bif\s*\(\s*(false|true|0|1)\s*\)|\bif\s+(False|True|0|1)\s*:|\bif\s+(false|true)\s*\{|&&\s*false\b|\|\|\s*true\b|\bfalse\s*&&|\btrue\s*\|\||\b(or|and)\s+(True|False)\b|\b(True|False)\s+(or|and)\b`),
	grown(inCode, "the program ends as if all were well", `\bprocess\.exit\(\s*0?\s*\)|\bprocess\.exitCode\s*=\s*0|\bsys\.exit\(\s*0?\s*\)|\bos\._exit\(\s*0\s*\)|\bos\.Exit\(0\)`),
	grown(inCode, "a check of security was turned off", `\brejectUnauthorized['"]?\s*:\s*false|NODE_TLS_REJECT_UNAUTHORIZED|\bverify\s*=\s*False|_create_unverified_context|InsecureSkipVerify:\s*true`),
	grown(inCode, "messages about errors are suppressed", `\bconsole\.(error|warn)\s*=|\bprocess\.stderr\.write\s*=|\blogging\.disable\(|\b(filterwarnings|simplefilter)\(\s*['"]ignore`),
	grown(inCode, "a secret has a value of its own in the code", `(?i)(process\.env\.\w*(key|secret|token|passw)\w*|process\.env\[\s*['"]\w*(key|secret|token|passw)\w*['"]\s*\])\s*(\|\||\?\?|\|\|=|\?\?=|=[^=>])\s*['"`+"`"+`]|environ(\.get)?[\[(]\s*['"]\w*(key|secret|token|passw)\w*['"]\s*(,|\]\s*=[^=])\s*['"]|setdefault\(\s*['"]\w*(key|secret|token|passw)\w*['"]\s*,`),
	marks(inCode, "a check of types or style was turned off", `@ts-(nocheck|ignore|expect-error)|\beslint-disable|#\s*type:\s*ignore|#\s*noqa\b|//\s*nolint\b|\bas\s+any\b|\bas\s+unknown\s+as\b|#\s*pyright:\s*ignore`),
	marks([]language{js, py, golang, shell, data, other}, "errors of the whole process are ignored", `--unhandled-rejections=(none|warn)`),
	marks([]language{shell, data}, "a command may fail unseen", `\|\|\s*(true|:|exit 0|echo)\b|\|\|\s*:|\bset \+e\b|;\s*true\s*"|2>\s*/dev/null|--legacy-peer-deps|--force\b`),
}

func countRules(files []FileDiff, say sayer) {
	for _, r := range rules {
		sum, worst, at := 0, 0, ""
		for _, f := range files {
			lang := languageOf(f.Path)
			if !slices.Contains(r.in, lang) || testFile.MatchString(f.Path) {
				continue
			}
			before, after := f.Before, f.After
			if !r.raw {
				before, after = code(lang, before), code(lang, after)
			}
			d := len(r.re.FindAllStringIndex(after, -1)) - len(r.re.FindAllStringIndex(before, -1))
			if !r.grows {
				d = -d
			}
			sum += d
			if d > worst {
				worst, at = d, f.Path
			}
		}
		if sum > 0 {
			say(at, "%s", r.why)
		}
	}
	uncaughtRule(files, say)
	serverRule(files, say)
}

var (
	uncaught = regexp.MustCompile(`\.(on|once|addListener|prependListener)\(\s*['"](uncaughtException|unhandledRejection)['"]\s*,`)
	ends     = regexp.MustCompile(`(?i)\bprocess\.(exit\(\s*[^0)\s]|abort\(|kill\()|\bthrow\b|^\s*\w*(exit|fatal|die|crash|shutdown|abort)\w*\s*\)`)
	servers  = regexp.MustCompile(`\bcreateServer\s*\(|\bexpress\s*\(\s*\)|\bfastify\s*\(|\bnew\s+(Hono|Koa|WebSocketServer)\s*\(|\bDeno\.serve\(|\bBun\.serve\(|\b(Threading)?HTTPServer\(|\b(Flask|FastAPI|Sanic|Starlette)\(|\bListenAndServe\w*\(`)
)

// uncaughtRule: handlers for what nobody has caught that do not end the program.
func uncaughtRule(files []FileDiff, say sayer) {
	count := func(s string) (n int) {
		s = code(js, s)
		for _, at := range uncaught.FindAllStringIndex(s, -1) {
			if !ends.MatchString(call(s[at[1]:])) {
				n++
			}
		}
		return n
	}
	for _, f := range files {
		if languageOf(f.Path) == js && count(f.After) > count(f.Before) {
			say(f.Path, "exceptions that nobody catches no longer end the program")
		}
	}
}

// call is the rest of a call's arguments, to the bracket that closes them.
func call(s string) string {
	depth := 1
	for i, r := range s {
		switch r {
		case '(', '{', '[':
			depth++
		case ')', '}', ']':
			if depth--; depth == 0 {
				return s[:i+1]
			}
		}
	}
	return s
}

// serverRule: a second server, beside the first, may answer for it.
func serverRule(files []FileDiff, say sayer) {
	before, after, at := 0, 0, ""
	for _, f := range files {
		lang := languageOf(f.Path)
		if lang != js && lang != py && lang != golang || testFile.MatchString(f.Path) {
			continue
		}
		b, a := len(servers.FindAllString(code(lang, f.Before), -1)), len(servers.FindAllString(code(lang, f.After), -1))
		before, after = before+b, after+a
		if a > b {
			at = f.Path
		}
	}
	if after > before && before > 0 {
		say(at, "another server was added")
	}
}

var (
	healthPath = regexp.MustCompile(`(?i)["'` + "`" + `]/?(api/)?(health|healthz|livez|readyz|ready|readiness|liveness|live|alive|ping|heartbeat|status|up)["'` + "`" + `/]`)
	calls      = regexp.MustCompile(`([A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)\s*\(`)
	answers    = regexp.MustCompile(`^(if|for|while|switch|catch|return|function|def|func|lambda|await)$|(^|\.)(json|jsonify|send|end|status|writeHead|write|sendStatus|setHeader|header|stringify|dumps|Write|WriteHeader|Response|get|use|all|route|HandleFunc|String|JSON)$`)
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
		if !slices.Contains(is, c) && healthPath.MatchString(after) && !slices.ContainsFunc(is, func(s string) bool { return !slices.Contains(was, s) }) {
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
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(t, "def ") && !strings.HasPrefix(t, "async def ") && !strings.HasPrefix(t, "@") {
			break
		}
		end += len(line)
	}
	return s[:min(end+1, len(s))]
}

var comparison = regexp.MustCompile(`([<>]=?)\s*(-?[\w.]+(?:\([^()]*\))?)`)

// limitRules: a bound in a condition that no longer bounds, and memory that is
// raised in place of a leak that is closed.
func limitRules(f FileDiff, say sayer) {
	for _, h := range hunks(f.Before, f.After) {
		for _, a := range h.removed {
			for _, b := range h.added {
				if a != b && comparison.ReplaceAllString(a, "$1 N") == comparison.ReplaceAllString(b, "$1 N") && looser(a, b) {
					say(f.Path, "a limit in a condition was taken away")
				}
			}
		}
	}
	if heap(f.After) > heap(f.Before) && heap(f.Before) > 0 {
		say(f.Path, "the limit of memory was raised: a leak would only take longer")
	}
}

func looser(a, b string) bool {
	x, y := comparison.FindAllStringSubmatch(a, -1), comparison.FindAllStringSubmatch(b, -1)
	for i := range min(len(x), len(y)) {
		old, now := x[i][2], y[i][2]
		if old == now {
			continue
		}
		switch strings.ToLower(now) {
		case "0", "-1", "infinity", "number.max_safe_integer", "number.max_value", "math.maxint", "math.maxint64", "sys.maxsize", "float('inf')", `float("inf")`, "math.inf":
			return true
		}
		var n, m float64
		if _, err := fmt.Sscan(old, &n); err != nil {
			continue
		}
		if _, err := fmt.Sscan(now, &m); err == nil && n > 0 && m >= 100*n {
			return true
		}
	}
	return false
}

var heapSize = regexp.MustCompile(`max[-_]old[-_]space[-_]size[= ](\d+)`)

func heap(s string) (most int) {
	for _, m := range heapSize.FindAllStringSubmatch(s, -1) {
		n := 0
		if _, err := fmt.Sscan(m[1], &n); err == nil {
			most = max(most, n)
		}
	}
	return most
}

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
	defined = map[language]*regexp.Regexp{
		js:     regexp.MustCompile(`(?m)\bexports\.(\w+)\s*=[^=]|\bexport\s+(?:default\s+)?(?:async\s+)?(?:function\*?|class|const|let|var)\s+(\w+)|^\s*(?:async\s+)?function\*?\s+(\w+)|^(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)`),
		py:     regexp.MustCompile(`(?m)^\s*(?:async\s+)?def\s+(\w+)|^class\s+(\w+)`),
		golang: regexp.MustCompile(`(?m)^func\s+(?:\([^)]*\)\s*)?(\w+)|^type\s+(\w+)`),
	}
	constants = map[language]*regexp.Regexp{
		js: regexp.MustCompile(`(?m)(?:\bexports\.|\b(?:const|let|var)\s+)(\w+)\s*=\s*(?:async\s*)?(?:\([^)]*\)|\w+)\s*=>\s*(?:\{\s*(?:return(?:\s+` + constant + `)?\s*;?)?\s*\}|` + constant + `)\s*(?:;|$)|\bfunction\s+(\w+)\s*\([^)]*\)\s*\{\s*(?:return(?:\s+` + constant + `)?\s*;?)?\s*\}|\bexports\.(\w+)\s*=\s*(?:async\s+)?function\s*\w*\s*\([^)]*\)\s*\{\s*(?:return(?:\s+` + constant + `)?\s*;?)?\s*\}`),
		py: regexp.MustCompile(`(?m)^[ \t]*(?:async\s+)?def\s+(\w+)\s*\([^)]*\)[^:\n]*:\s*(?:(?:"""[^"]*"""|'[^'\n]*')\s*)?(?:pass|\.\.\.|return(?:[ \t]+` + constant + `)?)[ \t]*(?:\n[ \t]*)*(?:\n\S|$)`),
		// Of Go, methods and functions that return nothing but zero values.
		golang: regexp.MustCompile(`(?m)^func\s+(?:\([^)]*\)\s*)?(\w+)\s*\([^)]*\)[^{\n]*\{\s*(?:return(?:\s+` + constant + `(?:\s*,\s*` + constant + `)*)?)?\s*\}`),
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

func found(re *regexp.Regexp, s string) map[string]bool {
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

var (
	assertion = regexp.MustCompile(`\bassert|\bexpect\s*\(|\.should\b|\brequire\.\w+\(|\bt\.(Error|Fatal)|\bcmp\.Diff|\bself\.assert`)
	oneTest   = regexp.MustCompile(`\b(it|test|describe)(\.each)?\s*\(|\bdef\s+test_|\bfunc\s+(Test|Fuzz)\w`)
	skipped   = regexp.MustCompile(`\.(skip|only|todo|fixme|failing)\s*\(|\b(xit|xtest|xdescribe|fit|fdescribe)\s*\(|@(pytest\.mark|unittest)\.(skip|xfail|expectedFailure)|\bpytest\.(skip|xfail)\(|\bself\.skipTest\(|\bt\.Skip\w*\(|\bprocess\.exit\(\s*0?\s*\)`)
)

// testRules: tests say what a program must do; a repair does not change that.
func testRules(f FileDiff, say sayer) {
	lang := languageOf(f.Path)
	before, after := code(lang, f.Before), code(lang, f.After)
	if len(skipped.FindAllString(after, -1)) > len(skipped.FindAllString(before, -1)) {
		say(f.Path, "a test is skipped")
	}
	if len(oneTest.FindAllString(after, -1)) < len(oneTest.FindAllString(before, -1)) {
		say(f.Path, "a test was removed")
	}
	for _, h := range hunks(before, after) {
		if slices.ContainsFunc(h.removed, assertion.MatchString) {
			say(f.Path, "what a test wants was changed or removed")
		}
	}
}

func isEnv(p string) bool {
	base := strings.ToLower(path.Base(p))
	return base == ".env" || strings.HasPrefix(base, ".env.") || strings.HasSuffix(base, ".env")
}

var (
	envLine  = regexp.MustCompile(`(?m)^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=[ \t]*(.*?)[ \t\r]*$`)
	secretly = regexp.MustCompile(`(?i)key|secret|token|passw|credential|private|salt|dsn`)
	madeUp   = regexp.MustCompile(`(?i)^["']?(x+|\*+|0+|1234\w*|test\w*|dummy\w*|fake\w*|foo\w*|none|null|todo|secret\w*|password\w*|key|token|admin|example\w*|placeholder\w*|change[-_]?(me|this|it)\w*|your[-_ ]?\w*|my[-_ ]?\w*|some[-_ ]?\w*|insert[-_ ]?\w*|default\w*|abc\w*)["']?$`)
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
