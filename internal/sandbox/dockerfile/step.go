package dockerfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// step checks an instruction, and finds the stages that it names.
func (p *planner) step(s *Stage, c instructions.Command, all []instructions.Stage) error {
	step := Step{Line: c.Location()[0].Start.Line, Command: c, Text: oneLine(c)}
	var err error
	switch c := c.(type) {
	case *instructions.CopyCommand:
		if c.From != "" {
			err = p.from(s, &step, c.From, all)
		}
		if err == nil {
			err = p.chmod(step.Line, c.Chmod)
		}
	case *instructions.AddCommand:
		err = p.add(step.Line, c)
	case *instructions.RunCommand:
		err = p.run(s, &step, c, all)
	case *instructions.VolumeCommand:
		p.note("VOLUME changes nothing: what is in its directories is kept like all other files")
	}
	if err == nil {
		s.Steps = append(s.Steps, step)
	}
	return err
}

func (p *planner) note(text string) {
	for _, n := range p.plan.Notes {
		if n == text {
			return
		}
	}
	p.plan.Notes = append(p.plan.Notes, text)
}

func oneLine(c instructions.Command) string {
	if s, ok := c.(interface{ String() string }); ok {
		return strings.Join(strings.Fields(s.String()), " ")
	}
	return strings.ToUpper(c.Name())
}

// from finds what --from names.
func (p *planner) from(s *Stage, step *Step, name string, all []instructions.Stage) error {
	found := p.named(name)
	if n, err := strconv.Atoi(name); found == nil && err == nil {
		if n < 0 || n >= len(p.stages) {
			return p.fault(step.Line, "from="+name, "there is no stage %d before this one", n)
		}
		found = p.stages[n]
	}
	if found == s {
		return p.fault(step.Line, "from="+name, "a stage does not take from itself")
	}
	if found == nil {
		if _, later := instructions.HasStage(all, name); later {
			return p.fault(step.Line, "from="+name, "the stage %.80q comes later; a stage takes from those before it", name)
		}
		return nil
	}
	if step.From == nil {
		step.From = map[string]*Stage{}
	}
	step.From[name] = found
	s.needs = append(s.needs, found)
	return nil
}

func (p *planner) chmod(line int, mode string) error {
	if mode == "" || strings.Contains(mode, "$") {
		return nil
	}
	if n, err := strconv.ParseUint(mode, 8, 32); err != nil || n > 0o7777 {
		return p.fault(line, "--chmod="+mode, "--chmod=%.40s is not done: octal digits up to 7777 are", mode)
	}
	return nil
}

var git = lazyregexp.New(`^(git://|git@|ssh://|https?://[^#?]*\.git(#|\?|$)|github\.com/)`)

// IsURL reports whether a source of ADD is fetched.
func IsURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}

func (p *planner) add(line int, c *instructions.AddCommand) error {
	for _, source := range c.SourcePaths {
		if git.MatchString(source) {
			return p.fault(line, source, "ADD of a git repository is not done; clone it by RUN")
		}
	}
	if c.KeepGitDir != nil {
		return p.fault(line, "--keep-git-dir", "ADD --keep-git-dir is not done; clone by RUN")
	}
	if c.Checksum != "" && (len(c.SourcePaths) != 1 || !IsURL(c.SourcePaths[0]) && !strings.Contains(c.SourcePaths[0], "$")) {
		return p.fault(line, "--checksum", "--checksum is for one address")
	}
	return p.chmod(line, c.Chmod)
}

func (p *planner) run(s *Stage, step *Step, c *instructions.RunCommand, all []instructions.Stage) error {
	line := step.Line
	switch {
	case instructions.GetNetwork(c) == instructions.NetworkHost:
		return p.fault(line, "--network=", "RUN --network=host is not done: a build has a network of its own, and default or none of it")
	case instructions.GetSecurity(c) == instructions.SecurityInsecure:
		return p.fault(line, "--security=", "RUN --security=insecure is not done: a build is isolated as its sandboxes are")
	case len(instructions.GetDevices(c)) > 0:
		return p.fault(line, "--device", "RUN --device is not done: sandboxes have no devices of the machine")
	}
	// With the variables as they are written; if they stand where they must be known, the build tells.
	raw := func(word string) (string, error) { return word, nil }
	if err := c.Expand(raw); err != nil {
		if strings.Contains(step.Text, "$") {
			return nil
		}
		return p.fault(line, "--mount", "%v", err)
	}
	for _, m := range instructions.GetMounts(c) {
		if m.Type == instructions.MountTypeSSH {
			return p.fault(line, "type=ssh", "RUN --mount=type=ssh is not done; give a key by --mount=type=secret")
		}
		if m.Target == "" && m.Type != instructions.MountTypeSecret {
			return p.fault(line, "--mount", "a mount of the type %s needs a target", m.Type)
		}
		if m.Type == instructions.MountTypeCache && (m.From != "" || m.Source != "") {
			return p.fault(line, "type=cache", "RUN --mount=type=cache with from or source is not done: a cache begins empty")
		}
		if m.SizeLimit != 0 {
			return p.fault(line, "size=", "RUN --mount with size is not done: the size of the sandbox is the limit")
		}
		if m.From != "" {
			if err := p.from(s, step, m.From, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// Trigger reads an instruction that an image has for those that begin with it (ONBUILD).
func (p *Plan) Trigger(text string) (Step, error) {
	none := &planner{lines: strings.Split(text, "\n"), plan: &Plan{}}
	ast, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return Step{}, none.located(err)
	}
	if len(ast.AST.Children) != 1 {
		return Step{}, none.fault(1, "", "is no instruction")
	}
	c, err := instructions.ParseCommand(ast.AST.Children[0])
	if err != nil {
		return Step{}, none.located(err)
	}
	var s Stage
	if err := none.step(&s, c, nil); err != nil {
		return Step{}, err
	}
	s.Steps[0].Text = "ONBUILD " + s.Steps[0].Text
	return s.Steps[0], nil
}

// Expand replaces the variables of a step by their values.
func (p *Plan) Expand(c instructions.Command, env map[string]string) error {
	if e, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		if err := e.Expand(func(word string) (string, error) { return p.word(word, env) }); err != nil {
			return err
		}
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok {
		lex := shell.NewLex('\\')
		lex.SkipProcessQuotes = true
		return e.ExpandRaw(func(word string) (string, error) {
			text, _, err := lex.ProcessWord(word, getter(env))
			return text, err
		})
	}
	return nil
}

// maxQuoted is the most bytes of a text with variables, and maxExpanded those of all their values.
const (
	maxQuoted   = 64 << 10
	maxExpanded = 1 << 20
)

var replaces = lazyregexp.New(`\$\{\w+/`)

// ExpandQuoted replaces the variables of a text as a shell does it between double quotes. Nothing is run, and what comes of a text
// that is anybody's is bounded.
func ExpandQuoted(text string, env map[string]string) (string, error) {
	switch {
	case !strings.Contains(text, "$"):
		return text, nil
	case len(text) > maxQuoted:
		return "", fmt.Errorf("has %d bytes and variables in it; the limit is %d", len(text), maxQuoted)
	case replaces.MatchString(text):
		return "", errors.New("has ${NAME/…}, which is not replaced here; give the value as it is")
	}
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	values := &bounded{getter(env), maxExpanded}
	text, _, err := shell.NewLex('\\').ProcessWord(quoted, values)
	if values.left < 0 {
		return "", fmt.Errorf("its variables have more than %d bytes", maxExpanded)
	}
	return text, err
}

// bounded gives values away until they have so many bytes.
type bounded struct {
	shell.EnvGetter
	left int
}

func (b *bounded) Get(name string) (string, bool) {
	value, ok := b.EnvGetter.Get(name)
	if b.left -= len(value); b.left < 0 {
		value = ""
	}
	return value, ok
}

// proxies need no ARG, and are no reason to run a step again.
var proxies = map[string]bool{"http_proxy": true, "https_proxy": true, "ftp_proxy": true, "no_proxy": true, "all_proxy": true}

// Proxies are the values of a build that each RUN has, and no key.
func (s *Stage) Proxies() map[string]string {
	all := map[string]string{}
	for k, v := range s.given {
		if proxies[strings.ToLower(k)] {
			all[k] = v
		}
	}
	return all
}

// Arg is the value of an ARG in the stage.
func (s *Stage) Arg(a instructions.KeyValuePairOptional) (value string, ok bool) {
	if v, ok := s.given[a.Key]; ok {
		return v, true
	}
	if a.Value != nil {
		return *a.Value, true
	}
	value, ok = s.meta[a.Key]
	return value, ok
}

// UsesContext reports whether a stage takes files from the context.
func (p *Plan) UsesContext() bool {
	uses := func(step Step) bool {
		switch c := step.Command.(type) {
		case *instructions.CopyCommand:
			return c.From == "" && len(c.SourcePaths) > 0
		case *instructions.AddCommand:
			return slices.ContainsFunc(c.SourcePaths, func(source string) bool { return !IsURL(source) })
		case *instructions.RunCommand:
			return slices.ContainsFunc(instructions.GetMounts(c), func(m *instructions.Mount) bool {
				return m.Type == instructions.MountTypeBind && m.From == ""
			})
		}
		return false
	}
	return slices.ContainsFunc(p.Stages, func(s *Stage) bool { return slices.ContainsFunc(s.Steps, uses) })
}
