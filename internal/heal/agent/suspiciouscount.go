package agent

import (
	"slices"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// counted is something whose number must not fall, or not grow.
type counted struct {
	in    []language
	re    *lazyregexp.Regexp
	grows bool // it must not grow
	raw   bool // comments count
	why   string
}

func gone(in []language, why, re string) counted {
	return counted{in: in, re: lazyregexp.New(re), why: why}
}

func grown(in []language, why, re string) counted {
	return counted{in: in, re: lazyregexp.New(re), grows: true, why: why}
}

func marks(in []language, why, re string) counted {
	return counted{in: in, re: lazyregexp.New(re), grows: true, raw: true, why: why}
}

var (
	inJS   = []language{js}
	inPy   = []language{py}
	inGo   = []language{golang}
	inCode = []language{js, py, golang}
)

const constant = `(?:-?\d+|null|undefined|void 0|true|false|None|True|False|nil|''|""|` + "``" + `|\{\s*\}|\[\s*\]|\(\s*\{\s*\}\s*\))`

// inCondition is the line of a condition, and two below.
const inCondition = `\b(?:if|else|catch|except|case|switch)\b[^\n]{0,200}(?:\n[^\n]{0,200}){0,2}?`

const goFailure = `(?:5\d\d\b|http\.Status(?:InternalServerError|BadGateway|ServiceUnavailable|GatewayTimeout))`

var rules = []counted{
	gone(inJS, "a check that throws was removed", `\bthrow\b`),
	gone(inPy, "a check that raises was removed", `\braise\b`),
	gone(inJS, "an assertion was removed", `\bassert\w*(\.\w+)*\s*\(`),
	gone(inPy, "an assertion was removed", `(?m)^\s*assert\b`),
	gone(inJS, "an answer that something is wrong was removed",
		inCondition+`(?:[sS]tatus(?:Code)?\s*(?:=|\(|:)|\bwriteHead\(|\bsendStatus\()\s*5\d\d\b|\?[^\n]{0,80}\b5\d\d\b`),
	gone(inPy, "an answer that something is wrong was removed",
		inCondition+`(?:\bstatus(?:_code)?\s*=|\bsend_(?:response|error)\(|\babort\(|\bHTTPException\(|\breturn\b[^\n]{0,120},)\s*5\d\d\b`),
	gone(inGo, "an answer that something is wrong was removed",
		inCondition+`(?:\bhttp\.Error\([^\n]*|\.(?:WriteHeader|JSON|String|Status|AbortWithStatus\w*|NewError)\(\s*)`+goFailure),
	gone(inGo, "an error is no longer checked", `\berr\s*!=\s*nil\b`),
	gone(inCode, "the program no longer ends where it did",
		`\bprocess\.(exit|abort)\s*\(|\bsys\.exit\s*\(|\bos\._exit\s*\(|\bos\.Exit\(|\blog\.Fatal\w*\(|\bpanic\(`),
	gone(inJS, "work that the program did was removed",
		`\bset(Interval|Timeout|Immediate)\s*\(|\.(start|schedule|listen|subscribe|connect|poll|watch|process|consume)\s*\(|\bcron\.\w+\(`),
	gone(inPy, "work that the program did was removed",
		`\.(start|run|add_job|submit|serve_forever|create_task|subscribe|connect|listen)\s*\(|\bensure_future\(|\bThread\(|@\w+\.(task|scheduled_job|on_event)\b`),
	gone(inGo, "work that the program did was removed",
		`\bgo\s+(func\b|[\w.]+\()|\btime\.(NewTicker|AfterFunc|Tick)\(|\bListenAndServe\w*\(|\.(Start|Run|Serve|Subscribe)\(`),
	gone(inJS, "a route was removed",
		`\b(app|router|server|fastify|api|route)\s*\.\s*(get|post|put|delete|patch|all|use|route)\s*\(|\b(req|request|url|u|ctx)\.(url|path|pathname)\s*===?\s*['"`+"`"+`]`),
	gone(inPy, "a route was removed",
		`@\w+\.(route|get|post|put|delete|patch|websocket)\(|\b(add_url_rule|add_api_route|add_route)\(|\bpath\(\s*['"]|['"]/[\w/-]*['"]\s*:\s*(lambda|\w)`),
	gone(inGo, "a route was removed", `\.(HandleFunc|Handle|GET|POST|PUT|DELETE|PATCH|Get|Post|Put|Delete|Patch)\(\s*"`),
	gone(inJS, "a module is no longer loaded", `\brequire\(\s*['"][^'"]+['"]\s*\)|\bfrom\s+['"][^'"]+['"]|\bimport\s*\(?\s*['"][^'"]+['"]`),
	gone(inPy, "a module is no longer loaded", `(?m)^\s*(from\s+\S+\s+import\s+\S|import\s+\S)`),

	grown(inJS, "an exception is swallowed", `\bcatch\s*(\([^)]*\))?\s*\{\s*(return(\s+`+constant+`)?\s*;?|continue\s*;?|void 0;?|;)?\s*\}`),
	grown(inJS, "a rejection is swallowed",
		`\.catch\(\s*(noop|_\.noop|Boolean|\(\s*\)\s*=>\s*|\(\s*\w+\s*\)\s*=>\s*|\w+\s*=>\s*|(async\s+)?function\s*\w*\s*\([^)]*\)\s*)(\{\s*(return(\s+`+constant+`)?\s*;?)?\s*\}|`+constant+`)?\s*\)`),
	grown(inPy, "an exception is swallowed", `(?m)^[ \t]*except\b[^\n]*:\s*(pass|\.\.\.)[ \t]*(\n|$)`),
	grown(inPy, "an exception is swallowed", `(?m)^[ \t]*except\s*((\(\s*)?(Base)?Exception\b[^\n]*)?:\s*(continue|return(\s+`+
		constant+`)?)[ \t]*(\n|$)`),
	grown(inPy, "an exception is swallowed", `\bsuppress\(\s*(Base)?Exception\b`),
	grown(inPy, "errors of the whole process are ignored", `\bsys\.excepthook\s*=|\.set_exception_handler\(`),
	grown(inGo, "a panic is swallowed", `\brecover\(\)`),
	grown(inGo, "an error is thrown away", `(^|[\s;{])_\s*=\s*[\w.]+\(|,\s*_\s*:?=\s*[\w.]+\(`),
	grown(inGo, "an error is swallowed", `\berr\s*!=\s*nil\s*\{\s*(return(\s+nil)?\s*;?|continue\s*;?)?\s*\}`),
	grown(inCode, "a condition was turned off",
		`\bif\s*\(\s*(false|true|0|1)\s*\)|\bif\s+(False|True|0|1)\s*:|\bif\s+(false|true)\s*\{|&&\s*false\b|\|\|\s*true\b|\bfalse\s*&&|\btrue\s*\|\||\b(or|and)\s+(True|False)\b|\b(True|False)\s+(or|and)\b`),
	grown(inCode, "the program ends as if all were well",
		`\bprocess\.exit\(\s*0?\s*\)|\bprocess\.exitCode\s*=\s*0|\bsys\.exit\(\s*0?\s*\)|\bos\._exit\(\s*0\s*\)|\bos\.Exit\(0\)`),
	grown(inCode, "a check of security was turned off",
		`\brejectUnauthorized['"]?\s*:\s*false|NODE_TLS_REJECT_UNAUTHORIZED|\bverify\s*=\s*False|_create_unverified_context|InsecureSkipVerify:\s*true`),
	grown(inCode, "messages about errors are suppressed",
		`\bconsole\.(error|warn)\s*=|\bprocess\.stderr\.write\s*=|\blogging\.disable\(|\b(filterwarnings|simplefilter)\(\s*['"]ignore`),
	grown(inCode, "a secret has a value of its own in the code",
		`(?i)(process\.env\.\w*(key|secret|token|passw)\w*|process\.env\[\s*['"]\w*(key|secret|token|passw)\w*['"]\s*\])\s*(\|\||\?\?|\|\|=|\?\?=|=[^=>])\s*['"`+"`"+`]|environ(\.get)?[\[(]\s*['"]\w*(key|secret|token|passw)\w*['"]\s*(,|\]\s*=[^=])\s*['"]|setdefault\(\s*['"]\w*(key|secret|token|passw)\w*['"]\s*,`),
	marks(inCode, "a check of types or style was turned off",
		`@ts-(nocheck|ignore|expect-error)|\beslint-disable|#\s*type:\s*ignore|#\s*noqa\b|//\s*nolint\b|\bas\s+any\b|\bas\s+unknown\s+as\b|#\s*pyright:\s*ignore`),
	marks([]language{js, py, golang, shell, data, other}, "errors of the whole process are ignored", `--unhandled-rejections=(none|warn)`),
	marks([]language{shell, data}, "a command may fail unseen",
		`\|\|\s*(true|:|exit 0|echo)\b|\|\|\s*:|\bset \+e\b|;\s*true\s*"|2>\s*/dev/null|--legacy-peer-deps|--force\b`),
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
	repeatRule(files, say)
}

var (
	uncaught = lazyregexp.New(`\.(on|once|addListener|prependListener)\(\s*['"](uncaughtException|unhandledRejection)['"]\s*,`)
	ends     = lazyregexp.New(`(?i)\bprocess\.(exit\(\s*[^0)\s]|abort\(|kill\()|\bthrow\b|^\s*\w*(exit|fatal|die|crash|shutdown|abort)\w*\s*\)`)
	servers  = lazyregexp.New(`\bcreateServer\s*\(|\bexpress\s*\(\s*\)|\bfastify\s*\(|\bnew\s+(Hono|Koa|WebSocketServer)\s*\(|\bDeno\.serve\(|\bBun\.serve\(|\b(Threading)?HTTPServer\(|\b(Flask|FastAPI|Sanic|Starlette)\(|\bListenAndServe\w*\(`)
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
