package playbook

import (
	"path"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

const (
	reportLines = 150
	aboveLines  = 12 // that a report may have above its first line: where, and the source
)

var escapes = lazyregexp.New(`\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])`)

// plainText is the end of a log without colours, carriage returns and what is no text.
func plainText(log string) string {
	if len(log) > MaxLog {
		log = log[len(log)-MaxLog:]
		if at := strings.IndexByte(log, '\n'); at >= 0 {
			log = log[at+1:]
		}
	}
	log = escapes.ReplaceAllString(strings.ToValidUTF8(log, "\uFFFD"), "")
	return strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "").Replace(log)
}

// What stands before a line of a program that another one runs: [0] of concurrently,
// web-1  | of compose, web:dev: of turbo, a time or a level.
const leads = `(?:(?:\[[\w .:/+-]{1,40}\] +){1,3}|\d{1,2}:\d\d:\d\d [AP]M +|[\w.-]{1,40} +\| |[\w@/.-]{1,60}:[\w-]{1,20}: |\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? +|[|│] ?)?`

// heads begin the report of an error.
var heads = lazyregexp.New(`^(` + leads + `)(?:` + strings.Join([]string{
	`(?:Uncaught |Unhandled |Fatal |Caused by: |Exception in thread "[^"\n]*" )?(?:\[?[A-Za-z_$][\w$]*(?:\.|::))*(?:[A-Z][\w$]*)?(?:Error|Exception|Interrupt|NotFound|DoesNotExist|ImproperlyConfigured|EADDRINUSE)\b[^:\n]{0,80}:.*`,
	`Traceback \(most recent call last\):`,
	`(?:panic|fatal error|FATAL ERROR|fatal|\w*[Ee]rror(?:\[\w+\])?|ERR!?|ERROR): .*`,
	`\[(?:ERROR|error|FATAL|fatal)\] .*|(?:\[vite\] )?Internal server error: .*|(?:\(!\) )?Failed to run dependency scan.*`,
	`(?:ERROR|FATAL|CRITICAL|SEVERE)\b.*`,
	`[✘✗⨯×❌] .*`,
	`npm (?:ERR!|error) Missing script.*`,
	`(?:Error: )?(?:Module not found|Failed to (?:compile|resolve|load|start|listen|bind)).*`,
	`\S+\(\d+,\d+\): error TS.*|\S+:\d+:\d+ - error TS.*`,
	`\S+\.go:\d+(?::\d+)?: .*|go: .*|listen \w+ .*`,
	`\S*(?:sh|bash|env)(?:: line \d+)?: .*(?:not found|No such file(?: or directory)?|Permission denied)`,
	`\S*python[\d.]*: (?:can't open file|No module named|Error while finding).*`,
	`\S+\.rb:\d+:in .*`,
	`\S?(?:\S.*)?(?:[Aa]ddress already in use|EADDRINUSE|port is already in use|[Pp]ort \d+ (?:is|was) (?:already )?in use|[Nn]o space left on device|ENOSPC|ENOENT|[Nn]o such file or directory|[Mm]issing required (?:env|config)).*`,
}, "|") + `)$`)

// Lines that programs write when another one has failed; the report is above them.
var trailers = lazyregexp.New(`(?i)^` + leads + `(?:` + strings.Join([]string{
	`npm (?:ERR!|error) (?:code|errno|syscall|path|command|lifecycle|workspace|location|a complete log|.*_logs|.*failed with error|\s).*`,
	`.*ELIFECYCLE.*`,
	`error:? (?:command failed|script|"?\w+"? exited|process ).*`,
	`error: script .* exited with code .*`,
	`\[nodemon\].*`, `\[ERROR\] (?:worker \(pid|shutting down|reason: worker failed).*`,
	`.*\[(?:ERROR|INFO)\] (?:worker \(pid|shutting down|reason: worker failed).*`,
	`can't connect to \('.*`, `ERROR:\s+(?:application startup failed|traceback \(most recent call last\)).*`,
	`exit status \d+`, `Node\.js v\d.*`, `.*command .* (?:failed|exited) with (?:exit )?code.*`,
	`info visit .*`,
}, "|") + `)$`)

var (
	location = lazyregexp.New(`^(?:file://|node:)?[^\s:]*[/\\:][^\n]*:\d+$`)
	caret    = lazyregexp.New(`^\s*[~^]+\s*$`)
	chain    = lazyregexp.New(`^(?:During handling of the above exception|The above exception was the direct cause)`)
)

// lastReport returns the last report of an error in a log: the message, what stands
// above it that belongs to it, and all that follows. It is "" if there is none.
func lastReport(log string) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	at, lead := -1, ""
	for i := len(lines) - 1; i >= 0; i-- {
		if trailers.MatchString(lines[i]) {
			continue
		}
		if m := heads.FindStringSubmatch(lines[i]); m != nil {
			at, lead = i, m[1]
			break
		}
	}
	if at < 0 {
		return ""
	}
	if lead != "" && !strings.HasPrefix(lead, "2") { // a time differs from line to line
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], lead)
		}
	} else if lead != "" {
		lines[at] = strings.TrimPrefix(lines[at], lead)
	}
	begin := above(lines, at)
	end := min(len(lines), at+reportLines)
	return strings.Join(lines[begin:end], "\n")
}

// above returns where a report begins whose message is at a line.
func above(lines []string, at int) int {
	// Python: the frames are above the message, and causes above those.
	begin, traceback := at, strings.HasPrefix(lines[at], "Traceback")
	for i := at - 1; i >= 0; i-- {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "Traceback"):
			begin, traceback = i, true
			continue
		case strings.HasPrefix(line, "  "), line == "":
			continue
		case chain.MatchString(line), traceback && i+2 < len(lines) && (chain.MatchString(lines[i+1]) || lines[i+1] == "" &&
			chain.MatchString(lines[i+2])):
			continue
		}
		break
	}
	if traceback {
		return begin
	}
	// Python without frames, for a file that cannot be parsed.
	for i := at - 1; i >= max(0, at-4); i-- {
		if strings.HasPrefix(lines[i], `  File "`) {
			return i
		}
	}
	// Node: where, the source, a mark, and then the message.
	for i := at - 1; i >= max(0, at-aboveLines); i-- {
		if location.MatchString(lines[i]) {
			for _, line := range lines[i+1 : at] {
				if caret.MatchString(line) {
					return i
				}
			}
		}
	}
	// Next: the file, and then the message.
	if at > 0 && sourceLine.MatchString(lines[at-1]) {
		return at - 1
	}
	return at
}

var sourceLine = lazyregexp.New(`^(?:⨯ |\./|\.\./|/)?[\w@./\[\]()-]+\.(?:[cm]?[jt]sx?|vue|svelte|astro|css|scss)(?::\d+:\d+)?$`)

// place is a file that a report names.
type place struct {
	file string
	line int
}

var (
	frame     = lazyregexp.New(`(?m)^\s+at (?:.*\()?((?:file://)?/[^:\n]+):(\d+):\d+\)?$`)
	atTop     = lazyregexp.New(`^((?:file://)?/[^\s:]+):(\d+)\n`)
	pyFrame   = lazyregexp.New(`(?m)^\s*File "([^"\n]+)", line (\d+)`)
	fileColon = lazyregexp.New(`(?m)^\s*(?:⨯ )?((?:\./|/|\w)[\w@./\[\]()+-]*\.[a-z]{1,6})[:(](\d+)[:,]\d+`)
)

// first returns where an error was raised, as a report of Node tells it; a frame of Node
// itself does not count.
func (p *project) first() (place, bool) {
	if m := atTop.FindStringSubmatch(p.report); m != nil {
		return toPlace(m), true
	}
	if m := frame.FindStringSubmatch(p.report); m != nil {
		return toPlace(m), true
	}
	return place{}, false
}

// frames are all places that a report names, the innermost first where that is known.
func (p *project) frames() (all []place) {
	for _, re := range []*lazyregexp.Regexp{atTop, frame} {
		for _, m := range re.FindAllStringSubmatch(p.report, 40) {
			all = append(all, toPlace(m))
		}
	}
	py := pyFrame.FindAllStringSubmatch(p.report, 200)
	for i := len(py) - 1; i >= 0; i-- {
		all = append(all, toPlace(py[i]))
	}
	for _, m := range fileColon.FindAllStringSubmatch(p.report, 40) {
		all = append(all, toPlace(m))
	}
	return all
}

func toPlace(m []string) place {
	n, _ := strconv.Atoi(m[2]) // digits; 0 for too many
	return place{strings.TrimPrefix(m[1], "file://"), n}
}

// packageOf returns the directory of the package of node_modules that a file is in, and
// the package's name; "": it is in none.
func packageOf(file string) (dir, name string) {
	at := strings.LastIndex("/"+file, "/node_modules/")
	if at < 0 {
		return "", ""
	}
	head, rest := file[:at], strings.TrimPrefix(file[at:], "/")
	rest = strings.TrimPrefix(rest, "node_modules/")
	name = packageName(rest)
	if name == "" {
		return "", ""
	}
	return path.Join(head, "node_modules", name), name
}
