package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// The tag "complete" of the grammar says what a word of the command line may be, so that
// completion cannot differ from what is accepted:
//
//	process, live, input, finished  names and ids, of those that the verb can act on
//	tag, signal, until, filter, verb
//	sandbox, snapshot, template     those that there are
//	service                         the same
//	files, dirs                     the shell knows them
//
// Flags whose placeholder is FILE, PATH or DIR need no tag.

// completeTimeout bounds how long a shell waits for a daemon after the tab key.
const completeTimeout = 2 * time.Second

// suggester finds the words that fit at the end of a command line.
type suggester struct {
	inv   *invocation
	words []string // the last is being typed

	node  *node
	args  []string // of the verb, so far
	infos []process.Info
	asked bool
	b     strings.Builder
}

// word is a word that fits, and what it is.
type word struct{ text, about string }

// answer returns the lines for the script.
func (s *suggester) answer() string {
	last := len(s.words) - 1
	cur := s.words[last]
	r := &reading{node: s.inv.model, typing: true}
	_ = r.read(s.words[:last]) // nothing is wrong while it is typed
	s.node, s.args = r.node, r.args
	_ = s.inv.chooseSandbox(r.node)
	dir := &s.inv.flags.StateDir // "~" is not expanded yet
	if home := s.inv.getenv("HOME"); home != "" && strings.HasPrefix(*dir, "~/") {
		*dir = filepath.Join(home, (*dir)[2:])
	}
	switch {
	case len(r.rest) > 0:
		n := last - len(r.rest)
		if r.rest[0] == "--" {
			n++
		}
		return s.directive("program", n)
	case r.pending != nil:
		return s.value(r.pending, "", cur)
	case strings.HasPrefix(cur, "-"):
		name, value, has := strings.Cut(cur, "=")
		if f := s.node.option(name); has && strings.HasPrefix(cur, "--") && f != nil && f.takesValue() {
			return s.value(f, name+"=", value)
		}
		return s.offer("", cur, s.options())
	case len(s.node.shown()) > 0 && len(s.args) == 0:
		return s.offer("", cur, verbsOf(s.node))
	case r.atProgram():
		return s.directive("program", last)
	}
	p := r.next()
	if p == nil {
		return ""
	}
	return s.value(p, "", cur)
}

// known are the sandboxes, or what they are made from, or the services.
func (s *suggester) known(kind string) (words []word) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	d, err := s.inv.connectMachine(ctx)
	if err != nil {
		return nil
	}
	defer d.Close()
	switch kind {
	case "sandbox":
		all, _ := d.Sandboxes(ctx, tend.SandboxFilter{})
		words = mapped(all, func(i *tend.SandboxInfo) word { return word{nameOfSandbox(i), i.State.String()} })
	case "snapshot":
		all, _ := d.SandboxSnapshots(ctx)
		words = mapped(all, func(s *tend.SandboxSnapshot) word { return word{nameOfSnapshot(s), s.State.String()} })
	case "service":
		all, _ := d.Services(ctx)
		_, here, _ := d.projects(ctx)
		words = mapped((&keptServices{project: here}).of(all), func(s *tend.Service) word { return word{s.Name, s.Phase.String()} })
	case "project":
		all, _ := d.ServiceProjects(ctx)
		words = mapped(all, func(p *tend.ServiceProject) word { return word{p.Name, p.File} })
	case "template":
		all, _ := d.Templates(ctx)
		words = mapped(all, func(t *tend.TemplateInfo) word { return word{t.Name, strings.Join(t.Tags, ", ")} })
	case "image":
		all, _ := d.Images(ctx)
		for i := range all {
			for _, name := range all[i].Names {
				words = append(words, word{name, sizeText(all[i].Bytes)})
			}
		}
	}
	return slices.DeleteFunc(words, func(w word) bool { return slices.Contains(s.args, w.text) })
}

func verbsOf(n *node) (words []word) {
	for _, v := range n.shown() {
		words = append(words, word{v.name, v.get("help")})
	}
	return words
}

func (s *suggester) options() (words []word) {
	for _, f := range visible(s.node.options()) {
		words = append(words, word{"--" + f.name, f.get("help")})
		if f.has("short") {
			words = append(words, word{"-" + f.get("short"), f.get("help")})
		}
	}
	return words
}

// value completes a value, which begins after prefix in its word.
func (s *suggester) value(p *param, prefix, cur string) string {
	kind := p.get("complete")
	switch {
	case kind == "" && p.has("enum"):
		var words []word
		for _, text := range p.list("enum") {
			words = append(words, word{text, ""})
		}
		return s.offer(prefix, cur, words)
	case kind == "" && p.get("placeholder") == "DIR":
		kind = "dirs"
	case kind == "" && (p.get("placeholder") == "FILE" || p.get("placeholder") == "PATH"):
		kind = "files"
	}
	return s.kind(kind, prefix, cur)
}

func (s *suggester) kind(kind, prefix, cur string) string {
	switch kind {
	case "files", "dirs":
		return s.directive(kind, 0)
	case "signal":
		var words []word
		for n := 1; n < 32; n++ {
			words = append(words, word{strings.TrimPrefix(process.SignalName(n), "SIG"), "signal " + fmt.Sprint(n)})
		}
		if strings.HasPrefix(strings.ToUpper(cur), "SIG") {
			for i := range words {
				words[i].text = "SIG" + words[i].text
			}
		}
		return s.offer(prefix, cur, words)
	case "until":
		return s.offer(prefix, cur, []word{
			{"exit", "it has ended"}, {"eof", "it has ended, and so has its output"}, {"tree", "no descendant is left"},
			{"input", "it waits for input"},
			{"quiet=", "no output for this long: quiet=2s"}, {"port=", "it listens on this TCP port: port=3000"},
			{"match=", "a line of output matches: match=REGEX"},
		})
	case "filter":
		return s.filter(prefix, cur)
	case "tag":
		var words []word
		for _, i := range s.processes() {
			words = append(words, word{i.Spec.Tag, ""})
		}
		return s.offer(prefix, cur, words)
	case "verb":
		n, _ := s.inv.model.find(s.args)
		return s.offer(prefix, cur, verbsOf(n))
	case "sandbox", "snapshot", "template", "image", "service":
		return s.offer(prefix, cur, s.known(kind))
	case "process", "live", "input", "finished":
		return s.offer(prefix, cur, s.named(kind))
	}
	return ""
}

// filter completes ps --filter: its keys, and then their values.
func (s *suggester) filter(prefix, cur string) string {
	key, _, has := strings.Cut(cur, "=")
	var words []word
	for _, f := range psFilters {
		if !has {
			words = append(words, word{f.key + "=", f.help})
		} else if f.key == key && f.of != nil {
			for _, i := range s.processes() {
				words = append(words, word{key + "=" + f.of(&i), ""})
			}
		}
	}
	return s.offer(prefix, cur, words)
}

// named returns the names of the processes that fit a kind, and then their ids,
// the youngest first.
func (s *suggester) named(kind string) []word {
	var names, ids []word
	all := s.processes()
	slices.Reverse(all)
	// What runs goes before what has ended.
	live := slices.DeleteFunc(slices.Clone(all), func(i process.Info) bool { return i.Exit != nil })
	ended := slices.DeleteFunc(all, func(i process.Info) bool { return i.Exit == nil })
	for _, i := range append(live, ended...) {
		switch {
		case kind == "live" && i.Exit != nil && i.TreeGone, kind == "finished" && i.Exit == nil,
			kind == "input" && (i.Exit != nil || i.Spec.PTY == nil && !i.Stdin.Open):
			continue
		}
		about := stateText(&i) + "  " + commandOf(&i.Spec)
		if i.Spec.Name != "" {
			names = append(names, word{i.Spec.Name, about})
			about = stateText(&i) + "  " + i.Spec.Name
		}
		ids = append(ids, word{string(i.ID), about})
	}
	return slices.DeleteFunc(append(names, ids...), func(w word) bool { return slices.Contains(s.args, w.text) })
}

// processes asks the daemon that the command line means; that there is no daemon is no error.
func (s *suggester) processes() []process.Info {
	if s.asked {
		return slices.Clone(s.infos)
	}
	s.asked = true
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	if d, err := s.inv.connect(ctx); err == nil {
		defer d.Close()
		s.infos, _ = d.List(ctx, process.Filter{})
	}
	return slices.Clone(s.infos)
}

// offer returns the words that begin as the one being typed, each once. prefix
// is what stands before them in the same word. Flags are offered where one was
// begun, and so none that is the name of a process.
func (s *suggester) offer(prefix, cur string, words []word) string {
	seen := map[string]bool{}
	open := true
	for _, w := range words {
		if seen[w.text] || !plainWord(w.text) || !hasPrefixFold(w.text, cur) || w.text[0] == '-' && (cur == "" || cur[0] != '-') {
			continue
		}
		seen[w.text] = true
		open = open && strings.HasSuffix(w.text, "=")
		about := []rune(printable(w.about))
		fmt.Fprintf(&s.b, "%s%s\t%s\n", prefix, w.text, string(about[:min(len(about), 60)]))
	}
	if len(seen) > 0 && open {
		s.b.WriteString(":nospace\n")
	}
	return s.b.String()
}

// directive is what the script itself completes.
func (s *suggester) directive(kind string, n int) string { return fmt.Sprintf(":%s\t%d\n", kind, n) }

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// plainWord: a shell takes the word as it stands. Names that are others have to
// be typed: an id of a daemon elsewhere may be meant for the shell.
func plainWord(s string) bool {
	return s != "" && s[0] != ':' && len(s) <= process.MaxNameLen && strings.IndexFunc(s, func(r rune) bool {
		return r == unicode.ReplacementChar || !unicode.In(r, unicode.L, unicode.Nd) && !strings.ContainsRune("_./:=@%+,-", r)
	}) < 0
}

// unquoted takes away the quotes of a word as bash and fish have it on their
// command line.
func unquoted(w string) string {
	var b strings.Builder
	quote := rune(0)
	escaped := false
	for _, r := range w {
		switch {
		case escaped:
			b.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
