package playbook

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/lib/owner"
	"github.com/tend-run/tend/internal/lib/saferegexp"
	"github.com/tend-run/tend/internal/service/config"
)

//go:embed books/*.yaml
var builtIn embed.FS

// Bounds of what a project adds.
const (
	MaxBooks  = 200
	maxSteps  = 20
	maxGlobs  = 20
	maxRegexp = 2000 // bytes
)

// Books are the playbooks of a project, in order of preference.
type Books struct{ all []*book }

// Names returns the names of the books in order of preference.
func (b *Books) Names() []string {
	names := make([]string, len(b.all))
	for i, one := range b.all {
		names[i] = one.name
	}
	return names
}

// text is a book as its file has it.
type text struct {
	Why      string            `key:"why" required:"yes" doc:"One line: what was seen. ${NAME} is what a named group matched."`
	Disabled bool              `key:"disabled" default:"false" doc:"The book is not used; for one that is built in."`
	Rank     int               `key:"rank" default:"50" min:"0" max:"100" doc:"Books with a lesser rank come first."`
	When     conditions        `key:"when" required:"yes" doc:"What must hold, all of it."`
	Where    map[string]string `key:"where" names:"env" doc:"The kinds of the named groups: word, number, name, package, path, deleted, port. Default: word."`
	With     string            `key:"with" doc:"For the books that are built in: the rule in Go that looks at the files."`
	Do       []step            `key:"do" doc:"What is done, in this order; the service is restarted at the end."`
	Verify   []string          `key:"verify" doc:"A command that must end with 0 before the restart."`
	Commit   bool              `key:"commit" default:"false" doc:"Changes of tracked files are committed."`
}

type conditions struct {
	Signal  []string        `key:"signal" enum:"exit,flap,health,stuck,pressure" doc:"What was seen of the service: one of these."`
	Exit    []int           `key:"exit" min:"0" max:"255" doc:"The exit code is one of these."`
	Killed  []config.Signal `key:"killed" doc:"The signal that ended it is one of these."`
	Log     config.Strings  `key:"log" doc:"One of these RE2 expressions matches what it wrote since its newest start. ^ and $ are the ends of a line."`
	Error   config.Strings  `key:"error" doc:"One of these RE2 expressions matches the last report of an error."`
	Exists  config.Strings  `key:"exists" doc:"Each of these globs below the root names something."`
	Missing config.Strings  `key:"missing" doc:"None of these globs below the root names anything."`
}

// step is one entry of do. Exactly one of its actions is given.
type step struct {
	Run           []string       `key:"run" doc:"A program with its arguments."`
	Restore       string         `key:"restore" doc:"A tracked file that is gone."`
	Remove        string         `key:"remove" doc:"A derived directory, in which nothing is tracked."`
	EndPortHolder string         `key:"end_port_holder" doc:"A port of the service."`
	EndOrphans    bool           `key:"end_orphans" default:"false" doc:"What is left of earlier runs is ended."`
	SetEnv        string         `key:"set_env" doc:"The name of a variable; value and file go with it."`
	Truncate      string         `key:"truncate" doc:"An untracked log file."`
	Propose       string         `key:"propose" doc:"A text for people and for the agent."`
	Restart       bool           `key:"restart" default:"false" doc:"Nothing but the restart."`
	In            string         `key:"in" doc:"For run: the directory below the root. Default: that of the service."`
	Aside         config.Strings `key:"aside" doc:"For run: directories below it that are moved aside first, and back if it does not help."`
	Value         string         `key:"value" doc:"For set_env."`
	File          string         `key:"file" default:".env" doc:"For set_env: the env file below the directory of the service."`
	Keep          config.Size    `key:"keep" default:"1MiB" doc:"For truncate: what stays of the end of the file."`
}

// book is one playbook, ready to be used.
type book struct {
	text
	name       string
	log, error []*regexp.Regexp
	rule       rule
}

// Load reads the built-in books and the *.yaml and *.yml of the directories; a missing
// directory has none. A book of a directory replaces the built-in one with the same name.
// What a book says is done with the rights of this process: it must belong to its user, as
// [owner] has it.
// The error is [config.Problems], that of [owner.Check], or that of a file that cannot be read.
func Load(dirs ...string) (*Books, error) {
	byName := map[string]*book{}
	var problems config.Problems
	add := func(file string, data []byte, own bool) {
		one, err := parse(file, data, own)
		var p config.Problems
		if errors.As(err, &p) {
			problems = append(problems, p...)
			return
		}
		byName[one.name] = one
	}
	names, err := fs.Glob(builtIn, "books/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := builtIn.ReadFile(name)
		if err != nil {
			return nil, err
		}
		add(name, data, true)
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if err := owner.Check(dir, os.Geteuid()); err != nil {
			return nil, err
		}
		count := 0
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if ext != ".yaml" && ext != ".yml" || e.IsDir() {
				continue
			}
			if count++; count > MaxBooks {
				return nil, fmt.Errorf("%s holds more than %d playbooks, which is the limit", dir, MaxBooks)
			}
			file := filepath.Join(dir, e.Name())
			if err := owner.Check(file, os.Geteuid()); err != nil {
				return nil, err
			}
			data, err := readFile(file)
			if err != nil {
				return nil, err
			}
			add(file, data, false)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	b := &Books{}
	for _, one := range byName {
		if !one.Disabled {
			b.all = append(b.all, one)
		}
	}
	slices.SortFunc(b.all, func(a, b *book) int { return cmp.Or(a.Rank-b.Rank, strings.Compare(a.name, b.name)) })
	return b, nil
}

// readFile reads one byte more than a file may have, at most.
func readFile(file string) ([]byte, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", file)
	}
	if st.Size() > config.MaxBytes {
		return nil, fmt.Errorf("%s has %d bytes; the limit is %d", file, st.Size(), config.MaxBytes)
	}
	return os.ReadFile(file)
}

// parse reads one file. own: it is of this package, and may name a rule.
func parse(file string, data []byte, own bool) (*book, error) {
	b := &book{name: strings.TrimSuffix(path.Base(filepath.ToSlash(file)), filepath.Ext(file))}
	err := config.Decode(file, data, &b.text, func(fail func(path, text string)) {
		if why := config.ServiceName(b.name); why != "" {
			fail("", "its name "+strings.Replace(why, "a service", "a playbook", 1))
		}
		b.check(fail, own)
	})
	return b, err
}

var groupUse = lazyregexp.New(`\$\{([^}]*)\}`)

// check finds what is wrong with values that are each right for themselves, and makes
// the book ready.
func (b *book) check(fail func(path, text string), own bool) {
	groups := map[string]bool{}
	compile := func(key string, list config.Strings) (out []*regexp.Regexp) {
		for i, text := range list {
			at := "when." + key + "." + strconv.Itoa(i)
			if text == "" || len(text) > maxRegexp {
				fail(at, fmt.Sprintf("has %d bytes; an expression has 1 to %d", len(text), maxRegexp))
				continue
			}
			re, err := saferegexp.Plain("(?m:" + text + ")")
			if err != nil {
				fail(at, err.Error())
				continue
			}
			for _, name := range re.SubexpNames() {
				if name != "" {
					groups[name] = true
				}
			}
			out = append(out, re)
		}
		return out
	}
	b.log, b.error = compile("log", b.When.Log), compile("error", b.When.Error)
	use := func(at, text string) {
		for _, m := range groupUse.FindAllStringSubmatch(text, -1) {
			if !groups[m[1]] {
				fail(at, fmt.Sprintf("uses ${%s}, and no expression has a group (?P<%s>…)", m[1], m[1]))
			}
		}
	}
	use("why", b.Why)
	for name, kind := range b.Where {
		at := "where." + name
		if !groups[name] {
			fail(at, "is no group of an expression")
		}
		if !slices.Contains(kinds, kind) {
			fail(at, fmt.Sprintf("is %q; it is one of %s", kind, strings.Join(kinds, ", ")))
		}
	}
	w := b.When
	if len(w.Signal)+len(w.Exit)+len(w.Killed)+len(w.Log)+len(w.Error)+len(w.Exists)+len(w.Missing) == 0 {
		fail("when", "is empty; it would fit everything")
	}
	for key, list := range map[string]config.Strings{"exists": w.Exists, "missing": w.Missing} {
		if len(list) > maxGlobs {
			fail("when."+key, fmt.Sprintf("has %d globs; the limit is %d", len(list), maxGlobs))
		}
		for i, g := range list {
			at := fmt.Sprintf("when.%s.%d", key, i)
			use(at, g)
			if why := badPath(groupUse.ReplaceAllString(g, "x")); why != "" || !doublestar.ValidatePattern(g) {
				fail(at, cmp.Or(why, fmt.Sprintf("is %q, which is no glob", g)))
			}
		}
	}
	if b.With != "" {
		if b.rule = rules[b.With]; b.rule == nil || !own {
			fail("with", "is for the playbooks that are built in")
		}
	}
	if b.With == "" && len(b.Do) == 0 && !b.Disabled {
		fail("do", "is empty; say what is to be done")
	}
	if len(b.Do) > maxSteps {
		fail("do", fmt.Sprintf("has %d steps; the limit is %d", len(b.Do), maxSteps))
	}
	if len(b.Verify) > 0 {
		b.checkArgv("verify", b.Verify, fail, use)
	}
	for i, s := range b.Do {
		b.checkStep("do."+strconv.Itoa(i), s, fail, use)
	}
}

func (b *book) checkStep(at string, s step, fail, use func(at, text string)) {
	var given []string
	note := func(key string, is bool) {
		if is {
			given = append(given, key)
		}
	}
	note("run", len(s.Run) > 0)
	note("end_orphans", s.EndOrphans)
	note("restart", s.Restart)
	for key, v := range map[string]string{"restore": s.Restore, "remove": s.Remove, "end_port_holder": s.EndPortHolder,
		"set_env": s.SetEnv, "truncate": s.Truncate, "propose": s.Propose} {
		note(key, v != "")
		use(at+"."+key, v)
		if (key == "restore" || key == "remove" || key == "truncate") && v != "" {
			if why := badPath(groupUse.ReplaceAllString(v, "x")); why != "" {
				fail(at+"."+key, why)
			}
		}
	}
	if len(given) != 1 {
		fail(at, fmt.Sprintf("has %d of run, restore, remove, end_port_holder, end_orphans, set_env, truncate, propose and restart; give one",
			len(given)))
		return
	}
	if strings.Contains(s.Remove, "${") {
		fail(at+".remove", "holds a value from the log; name the directory")
	}
	if given[0] == "run" {
		b.checkArgv(at+".run", s.Run, fail, use)
	}
	if given[0] == "set_env" {
		if s.Value == "" {
			fail(at, "needs the key value")
		}
		use(at+".value", s.Value)
	}
	for key, v := range map[string]string{"in": s.In, "file": s.File} {
		if why := badPath(v); v != "" && why != "" || strings.Contains(v, "${") {
			fail(at+"."+key, cmp.Or(why, "holds a value from the log; name the place"))
		}
	}
	for i, a := range s.Aside {
		if !isDerivedName(a) {
			fail(fmt.Sprintf("%s.aside.%d", at, i), fmt.Sprintf("is %q; only directories that tools make again are moved aside: %s",
				a, strings.Join(derivedNames(), ", ")))
		}
	}
}

// interpreters run a text, a file or a program that is one of their arguments.
var interpreters = lazyregexp.New(`^(sh|bash|dash|zsh|ksh|ash|fish|env|python[0-9.]*|node|nodejs|deno|tsx|perl|ruby|php|lua|awk|gawk|sed|xargs|sudo|su|doas|ssh|make|nohup|timeout|nice|exec)$`)

// installers fetch and run what they are given a name of.
var installers = lazyregexp.New(`^(npm|npx|pnpm|pnpx|yarn|bun|bunx|corepack|pip[0-9.]*|pipx|uv|uvx|poetry|pipenv|go|cargo|gem|bundle|composer|apt|apt-get|apk|dnf|yum|brew|curl|wget|git)$`)

// checkArgv looks at a program with its arguments: a value from the log is an argument
// of its own, and none that a program would run.
func (b *book) checkArgv(at string, argv []string, fail, use func(at, text string)) {
	if argv[0] == "" || strings.Contains(argv[0], "${") {
		fail(at, "names no program; a value from the log cannot be one")
	}
	program, texts := path.Base(argv[0]), 0
	for i, word := range argv {
		place := fmt.Sprintf("%s.%d", at, i)
		use(place, word)
		for _, m := range groupUse.FindAllStringSubmatch(word, -1) {
			kind := cmp.Or(b.Where[m[1]], kindWord)
			switch {
			case interpreters.MatchString(program) && (word != m[0] || texts == 0):
				fail(place, "puts a value from the log into the text of a program; give it as an argument of its own, after the text")
			case installers.MatchString(program) && (kind == kindWord || kind == kindName):
				fail(place, fmt.Sprintf("would fetch whatever the log names; say below where that %s is a package, a path or a number", m[1]))
			}
		}
		if i > 0 && !strings.HasPrefix(word, "-") {
			texts++
		}
	}
}

// badPath says why a path is none below the root.
func badPath(p string) string {
	if p == "" || path.IsAbs(p) || strings.ContainsAny(p, "\\\x00") || slices.Contains(strings.Split(p, "/"), "..") {
		return fmt.Sprintf("is %q; a path is below the root, with no .. in it", p)
	}
	return ""
}
