package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// MaxFile is the most bytes of a Dockerfile, and maxSteps the most instructions.
const (
	MaxFile  = 1 << 20
	maxSteps = 1000
)

// Error is a mistake in a Dockerfile, or what it has and is not done here.
type Error struct {
	Line, Column int // from 1; the column counts characters
	Reason       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Options of a build.
type Options struct {
	Target string            // the name or number of a stage; "": the last
	Args   map[string]string // values of ARG
}

// Plan is what a build has to do.
type Plan struct {
	Stages []*Stage // those that the target needs, each after those that it needs; the last is the target
	Notes  []string // what is in the file and changes nothing
	escape rune
}

// Stage is one of a Dockerfile.
type Stage struct {
	Name string // or its number
	Line int
	// Base is the stage that it begins with, and Image the image; neither: nothing at all.
	Base  *Stage
	Image string
	Steps []Step

	// given are the values of the build, and meta those of ARG before the first FROM: what an ARG
	// of the stage without a value gets.
	given, meta map[string]string
	needs       []*Stage
}

// Needs are the stages that it takes from.
func (s *Stage) Needs() []*Stage { return s.needs }

// Step is an instruction.
type Step struct {
	Line    int
	Text    string // as it is written, in one line
	Command instructions.Command
	// From are the stages by the names in --from, of a COPY or of the mounts of a RUN. Another
	// name is that of an image.
	From map[string]*Stage
}

// Parse reads a Dockerfile. The error is an *Error.
func Parse(text string, o Options) (*Plan, error) {
	p := &planner{lines: strings.Split(text, "\n"), o: o, plan: &Plan{}}
	if len(text) > MaxFile {
		return nil, p.fault(1, "", "the file has %d bytes; the limit is %d", len(text), MaxFile)
	}
	for n, line := range p.lines {
		if i := strings.IndexFunc(line, func(c rune) bool { return c == utf8.RuneError || c == 0 }); i >= 0 {
			return nil, &Error{n + 1, utf8.RuneCountInString(line[:i]) + 1, "is no UTF-8 text"}
		}
	}
	if err := p.parse(text); err != nil {
		return nil, err
	}
	return p.plan, nil
}

type planner struct {
	lines  []string
	o      Options
	plan   *Plan
	meta   map[string]string
	stages []*Stage
}

// fault is a mistake on a line, at a word of it if that is there.
func (p *planner) fault(line int, word, format string, args ...any) error {
	line = min(max(line, 1), len(p.lines))
	at := line
	column := len(p.lines[line-1]) - len(strings.TrimLeft(p.lines[line-1], " \t"))
	for n := line; word != "" && n <= len(p.lines) && n < line+100; n++ { // an instruction may have many lines
		if i := strings.Index(p.lines[n-1], word); i >= 0 {
			at, column = n, i
			break
		}
	}
	return &Error{at, utf8.RuneCountInString(p.lines[at-1][:column]) + 1, fmt.Sprintf(format, args...)}
}

// located makes an *Error of one of the library.
func (p *planner) located(err error) error {
	line := 1
	if l, ok := errors.AsType[*parser.LocationError](err); ok {
		err = l.Unwrap()
		if len(l.Locations) > 0 && len(l.Locations[0]) > 0 {
			line = l.Locations[0][0].Start.Line
		}
	}
	if u, ok := errors.AsType[*instructions.UnknownInstructionError](err); ok {
		return p.fault(u.Line, u.Instruction, "%.40q is no instruction of a Dockerfile", u.Instruction)
	}
	return p.fault(line, "", "%s", strings.ReplaceAll(err.Error(), "\n", " "))
}

func (p *planner) parse(text string) error {
	ast, err := parser.Parse(bytes.NewReader([]byte(text)))
	if err != nil {
		return p.located(err)
	}
	p.plan.escape = ast.EscapeToken
	for _, n := range ast.AST.Children {
		if strings.EqualFold(n.Value, "ONBUILD") {
			return p.fault(n.StartLine, "", "ONBUILD is not done: it is for images that others build from; a template has none")
		}
	}
	stages, meta, err := instructions.Parse(ast.AST, nil)
	if err != nil {
		return p.located(err)
	}
	if len(stages) == 0 {
		return p.fault(1, "", "there is no FROM")
	}
	if syntax, _, _, ok := parser.DetectSyntax([]byte(text)); ok {
		p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("# syntax=%.100s is not followed: Dockerfiles are read as BuildKit v0.31 reads them", syntax))
	}
	if err := p.arguments(meta); err != nil {
		return err
	}
	steps := 0
	for i := range stages {
		if steps += len(stages[i].Commands); steps > maxSteps {
			return p.fault(stages[i].Location[0].Start.Line, "", "there are more than %d instructions", maxSteps)
		}
		if err := p.stage(i, stages); err != nil {
			return err
		}
	}
	return p.choose()
}

// platform are the variables that a file may use for it.
func platform() map[string]string {
	all := map[string]string{}
	for _, of := range []string{"TARGET", "BUILD"} {
		all[of+"PLATFORM"], all[of+"OS"], all[of+"ARCH"], all[of+"VARIANT"] = "linux/"+runtime.GOARCH, "linux", runtime.GOARCH, ""
	}
	return all
}

// arguments reads what is before the first FROM.
func (p *planner) arguments(meta []instructions.ArgCommand) error {
	p.meta = platform()
	for i := range meta {
		line := meta[i].Location()[0].Start.Line
		for _, a := range meta[i].Args {
			value := a.Value
			if given, ok := p.o.Args[a.Key]; ok {
				value = &given
			} else if value != nil {
				v, err := p.plan.word(*value, p.meta)
				if err != nil {
					return p.fault(line, *a.Value, "%v", err)
				}
				value = &v
			}
			if value != nil {
				p.meta[a.Key] = *value
			}
		}
	}
	return nil
}

// word expands the variables of a word.
func (p *Plan) word(word string, env map[string]string) (string, error) {
	text, _, err := shell.NewLex(p.escape).ProcessWord(word, getter(env))
	return text, err
}

func getter(env map[string]string) shell.EnvGetter {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		all = append(all, k+"="+env[k])
	}
	return shell.EnvsFromSlice(all)
}

func (p *planner) stage(i int, all []instructions.Stage) error {
	from := &all[i]
	line := from.Location[0].Start.Line
	s := &Stage{Name: from.Name, Line: line, given: p.o.Args, meta: p.meta}
	if s.Name == "" {
		s.Name = strconv.Itoa(i)
	}
	base, err := p.plan.word(from.BaseName, p.meta)
	if err != nil {
		return p.fault(line, from.BaseName, "%v", err)
	}
	if base == "" {
		return p.fault(line, from.BaseName, "%.80q is empty: it needs an ARG before the first FROM with a value, or --build-arg", from.BaseName)
	}
	if s.Base = p.named(base); s.Base != nil {
		s.needs = append(s.needs, s.Base)
	} else if base != "scratch" {
		s.Image = base
	}
	if from.Platform != "" {
		wanted, err := p.plan.word(from.Platform, p.meta)
		if err != nil {
			return p.fault(line, from.Platform, "%v", err)
		}
		if own := p.meta["BUILDPLATFORM"]; !isOwn(wanted) {
			return p.fault(line, from.Platform, "FROM --platform=%.40s is not done: sandboxes run programs of this machine, which is %s", wanted, own)
		}
	}
	p.stages = append(p.stages, s)
	for _, c := range from.Commands {
		if err := p.step(s, c, all); err != nil {
			return err
		}
	}
	return nil
}

func isOwn(platform string) bool {
	arch, _ := strings.CutPrefix(platform, "linux/")
	switch arch, _, _ = strings.Cut(arch, "/"); arch {
	case runtime.GOARCH, "linux", "local", "":
		return true
	case "x86_64":
		return runtime.GOARCH == "amd64"
	case "aarch64":
		return runtime.GOARCH == "arm64"
	}
	return false
}

// named finds a stage before this one; nil: there is none.
func (p *planner) named(name string) *Stage {
	for _, s := range slices.Backward(p.stages) {
		if strings.EqualFold(s.Name, name) {
			return s
		}
	}
	return nil
}

// choose finds the target, and what it needs.
func (p *planner) choose() error {
	target := p.stages[len(p.stages)-1]
	if p.o.Target != "" {
		target = p.named(p.o.Target)
		if n, err := strconv.Atoi(p.o.Target); target == nil && err == nil && n >= 0 && n < len(p.stages) {
			target = p.stages[n]
		}
		if target == nil {
			var names []string
			for _, s := range p.stages {
				names = append(names, s.Name)
			}
			return p.fault(1, "", "there is no stage %.80q; there are: %.400s", p.o.Target, strings.Join(names, ", "))
		}
	}
	wanted := map[*Stage]bool{}
	var want func(s *Stage)
	want = func(s *Stage) {
		if !wanted[s] {
			wanted[s] = true
			for _, n := range s.needs {
				want(n)
			}
		}
	}
	want(target)
	for _, s := range p.stages {
		if wanted[s] {
			p.plan.Stages = append(p.plan.Stages, s)
		}
	}
	return nil
}
