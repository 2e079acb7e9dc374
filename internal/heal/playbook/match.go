package playbook

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/service/config"
)

const (
	maxMatches = 8   // of one expression that are looked at, the last ones
	maxValue   = 300 // bytes of one captured value
)

// finding is what a rule has found: the cause, and what is to be done.
type finding struct {
	why     string // "" for that of the book
	actions []Action
	strong  bool
}

// rule is the part of a built-in book that looks at the files. It is given the named
// groups of one match, unchecked, and returns nothing if the book does not fit.
type rule func(p *project, groups map[string]string) []finding

// match returns what the book would do.
func (b *book) match(p *project) (plans []Plan) {
	w := b.When
	switch {
	case len(w.Signal) > 0 && !slices.Contains(w.Signal, string(p.Signal)):
		return nil
	case len(w.Exit) > 0 && (p.Exit == nil || p.Exit.Signal != 0 || p.Exit.Lost() || !slices.Contains(w.Exit, p.Exit.Code)):
		return nil
	case len(w.Killed) > 0 && (p.Exit == nil || !slices.ContainsFunc(w.Killed, func(s config.Signal) bool { return int(s) == p.Exit.Signal })):
		return nil
	}
	inLog, ok := matches(b.log, p.log)
	if !ok {
		return nil
	}
	inReport, ok := matches(b.error, p.report)
	if !ok {
		return nil
	}
	for _, m := range inReport {
		for _, n := range inLog {
			groups := map[string]string{}
			for k, v := range n {
				groups[k] = v
			}
			for k, v := range m {
				groups[k] = v
			}
			for _, f := range b.fit(p, groups) {
				plan := Plan{Book: b.name, Why: oneLine(cmp.Or(f.why, fill(b.Why, groups))), Actions: f.actions, Verify: fillAll(b.Verify, groups),
					Commit: b.Commit, Strong: f.strong, rank: b.Rank}
				if !slices.ContainsFunc(plans, func(o Plan) bool { return sameActions(o, plan) }) {
					plans = append(plans, plan)
				}
			}
			if len(plans) > 0 { // one match tells it; others are of the same error
				return plans
			}
		}
	}
	return nil
}

// matches returns the named groups of the last matches of each expression; with no
// expressions there is one match, of no groups.
func matches(list []*regexp.Regexp, text string) (all []map[string]string, ok bool) {
	if len(list) == 0 {
		return []map[string]string{nil}, true
	}
	for _, re := range list {
		found := re.FindAllStringSubmatch(text, 1000)
		found = found[max(0, len(found)-maxMatches):]
		slices.Reverse(found)
		for _, m := range found {
			groups := map[string]string{}
			for i, name := range re.SubexpNames() {
				if name != "" && m[i] != "" {
					groups[name] = m[i]
				}
			}
			all = append(all, groups)
		}
	}
	return all, len(all) > 0
}

// fit checks the groups of one match, and returns what is to be done.
func (b *book) fit(p *project, groups map[string]string) []finding {
	if b.rule != nil {
		return b.rule(p, groups)
	}
	for name, value := range groups {
		checked, ok := p.value(cmp.Or(b.Where[name], kindWord), value)
		if !ok {
			return nil
		}
		groups[name] = checked
	}
	for _, g := range b.When.Exists {
		if !p.has(fill(g, groups)) {
			return nil
		}
	}
	for _, g := range b.When.Missing {
		if p.has(fill(g, groups)) {
			return nil
		}
	}
	var f finding
	for _, s := range b.Do {
		a, ok := p.action(s, groups)
		if !ok {
			return nil
		}
		f.actions = append(f.actions, a)
	}
	return []finding{f}
}

// The kinds of values that a log may name.
const (
	kindWord    = "word"
	kindNumber  = "number"
	kindName    = "name"
	kindPackage = "package"
	kindPath    = "path"
	kindDeleted = "deleted"
	kindPort    = "port"
)

var kinds = []string{kindWord, kindNumber, kindName, kindPackage, kindPath, kindDeleted, kindPort}

var (
	wordForm   = lazyregexp.New(`^[A-Za-z0-9@_+:=,][A-Za-z0-9@._/+:=,-]*$`)
	numberForm = lazyregexp.New(`^[0-9]{1,18}$`)
	nameForm   = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// value checks one value, and returns it as it may be used.
func (p *project) value(kind, v string) (string, bool) {
	if v == "" || len(v) > maxValue {
		return "", false
	}
	switch kind {
	case kindWord:
		return v, wordForm.MatchString(v) && !slices.Contains(strings.Split(v, "/"), "..") && !strings.Contains(v, "=/") &&
			!strings.Contains(v, "../")
	case kindNumber:
		return v, numberForm.MatchString(v)
	case kindName:
		return v, nameForm.MatchString(v)
	case kindPackage:
		name := packageName(v)
		return name, name != "" && p.locks(name)
	case kindPath:
		rel, ok := p.below(v, p.dir)
		return rel, ok && plainPath(rel) && p.exists(rel) && p.unlinked(rel)
	case kindDeleted:
		rel, ok := p.below(v, p.dir)
		return rel, ok && p.gone(rel)
	case kindPort:
		port, ok := p.port(v)
		return strconv.Itoa(port), ok
	}
	return "", false
}

// plainPath reports whether a path has nothing that a program could take for an option.
func plainPath(rel string) bool {
	return !strings.HasPrefix(rel, "-") && badPath(rel) == "" && !strings.ContainsFunc(rel, func(r rune) bool {
		return r < ' ' ||
			r == 0x7f || r == 0xFFFD
	})
}

// gone reports whether a path is that of a tracked file that can be restored.
func (p *project) gone(rel string) bool {
	return plainPath(rel) && p.git.deleted()[rel] && p.unlinked(rel) && !p.exists(rel)
}

// port is a port on which the service is to listen.
func (p *project) port(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n < 1<<16 && slices.Contains(p.ports(), n)
}

// ports are those that the service is to listen on: of its probes, and of PORT.
func (p *project) ports() []int {
	all := slices.Clone(p.Ports)
	if n, err := strconv.Atoi(p.Env["PORT"]); err == nil && n > 0 && n < 1<<16 && !slices.Contains(all, n) {
		all = append(all, n)
	}
	return all
}

// action is one step with the values of a match in it. It checks again what it leads to:
// whatever a book says, nothing else is done.
func (p *project) action(s step, groups map[string]string) (a Action, ok bool) {
	at := func(name string) (string, bool) { // below the directory of the service
		rel, ok := p.below(fill(name, groups), p.dir)
		return rel, ok && plainPath(rel) && p.unlinked(rel)
	}
	switch {
	case len(s.Run) > 0:
		a = Action{Kind: Run, Argv: fillAll(s.Run, groups), Path: p.dirPath(p.dir)}
		if s.In != "" {
			a.Path = p.dirPath(path.Clean(s.In))
		}
		for _, d := range s.Aside {
			rel := path.Join(cmp.Or(a.Path, "."), d)
			if !p.removable(rel) && p.exists(rel) {
				return a, false
			}
			a.Aside = append(a.Aside, rel)
		}
		a.Reason = "run " + strings.Join(a.Argv, " ")
		return a, a.Path == "" || p.isDir(a.Path) && p.unlinked(a.Path)
	case s.Restore != "":
		rel, ok := p.below(fill(s.Restore, groups), p.dir)
		return Action{Kind: Restore, Path: rel, Reason: "restore " + rel + " from git"}, ok && p.gone(rel)
	case s.Remove != "":
		rel, ok := at(s.Remove)
		return Action{Kind: Remove, Path: rel, Reason: "remove " + rel + ", which is made again"}, ok && p.removable(rel)
	case s.EndPortHolder != "":
		port, ok := p.port(fill(s.EndPortHolder, groups))
		return Action{Kind: EndPortHolder, Port: port, Reason: fmt.Sprintf("end what is left of %s on port %d", p.Service, port)}, ok
	case s.EndOrphans:
		return Action{Kind: EndOrphans, Reason: "end what is left of " + p.Service}, true
	case s.SetEnv != "":
		rel, ok := at(s.File)
		a = Action{Kind: SetEnv, Name: fill(s.SetEnv, groups), Value: fill(s.Value, groups), Path: rel}
		a.Reason = "add " + a.Name + " to " + rel
		return a, ok && nameForm.MatchString(a.Name) && !strings.ContainsAny(a.Value, "\n\r\x00") && isEnvFile(rel)
	case s.Truncate != "":
		rel, ok := at(s.Truncate)
		return Action{Kind: Truncate, Path: rel, Keep: int64(s.Keep), Reason: "keep the end of " + rel}, ok && p.isLog(rel)
	case s.Propose != "":
		return Action{Kind: Propose, Reason: oneLine(fill(s.Propose, groups))}, true
	}
	return Action{Kind: Restart, Reason: "restart " + p.Service}, s.Restart
}

// dirPath is how an action says a directory: "" for the root.
func (p *project) dirPath(rel string) string {
	if rel == "." {
		return ""
	}
	return rel
}

// removable reports whether a path is that of a derived directory, with nothing in it
// that git tracks. Where there is no git, nothing says what is derived but its name, so
// only what no person writes to is.
func (p *project) removable(rel string) bool {
	st, err := p.root.Lstat(rel)
	if err != nil || !st.IsDir() || !isDerived(rel) || !p.unlinked(rel) {
		return false
	}
	if base := path.Base(rel); base == "dist" || base == "build" || base == "out" || base == "target" {
		return p.git.repository() && p.git.ignored(rel) && !p.git.tracks(rel)
	}
	return !p.git.tracks(rel)
}

func isEnvFile(rel string) bool {
	return strings.HasPrefix(path.Base(rel), ".env") && !IsExample(rel)
}

// fill puts values into a text.
func fill(text string, groups map[string]string) string {
	return groupUse.ReplaceAllStringFunc(text, func(use string) string { return groups[use[2:len(use)-1]] })
}

func fillAll(list []string, groups map[string]string) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fill(s, groups)
	}
	return out
}

// oneLine is a text for people: bounded, and with nothing in it that a terminal obeys.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxValue {
		s = strings.ToValidUTF8(s[:maxValue], "") + "…"
	}
	return s
}

func sameActions(a, b Plan) bool {
	return slices.EqualFunc(a.Actions, b.Actions, func(x, y Action) bool {
		return x.Kind == y.Kind && x.Path == y.Path && x.Port == y.Port && x.Name == y.Name && slices.Equal(x.Argv, y.Argv)
	})
}

// locks reports whether the project wants a package, by a lock file of Node or of Python.
func (p *project) locks(name string) bool {
	if l := p.lock(); l != nil && l.holds(p, name) {
		return true
	}
	w := p.wants()
	return w != nil && w.names[pep503(name)]
}
