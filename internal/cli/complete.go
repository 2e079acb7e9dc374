package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/alecthomas/kong"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// What a word of the command line may be is said by the tag "complete" of the
// grammar, so that completion cannot differ from what is accepted:
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

	node  *kong.Node
	flags []*kong.Flag
	args  []string // of the verb, so far
	infos []process.Info
	asked bool
	b     strings.Builder
}

// word is a word that fits, and what it is.
type word struct{ text, about string }

// answer returns the lines for the script.
func (s *suggester) answer() string {
	s.node, s.flags = s.inv.model.Node, s.inv.model.Flags
	last := len(s.words) - 1
	cur := s.words[last]
	for i := 0; i < last; i++ {
		w := s.words[i]
		if w == "--" && s.program() {
			return s.directive("program", i+1)
		}
		if len(w) > 1 && w[0] == '-' && w != "--" {
			flag, value, here := s.flagOf(w)
			switch {
			case flag == nil || !takesValue(flag):
				continue
			case here:
				s.use(flag, value)
			case i+1 == last:
				return s.value(flag, "", cur)
			default:
				i++
				s.use(flag, s.words[i])
			}
			continue
		}
		if child := s.childOf(w); child != nil {
			s.node, s.flags = child, append(slices.Clone(s.flags), child.Flags...)
			continue
		}
		if s.program() {
			return s.directive("program", i)
		}
		s.args = append(s.args, w)
	}
	if len(cur) > 0 && cur[0] == '-' {
		if flag, value, here := s.flagOf(cur); flag != nil && here && strings.HasPrefix(cur, "--") && takesValue(flag) {
			return s.value(flag, strings.TrimSuffix(cur, value), value)
		}
		return s.offer("", cur, s.options())
	}
	if verbs := s.verbs(); len(verbs) > 0 && len(s.args) == 0 {
		return s.offer("", cur, verbs)
	}
	if s.program() {
		return s.directive("program", last)
	}
	if p := s.positional(); p != nil {
		kind := p.Tag.Get("complete")
		if kind == "" && p.Enum != "" {
			return s.offer("", cur, plain(p.EnumSlice()...))
		}
		return s.kind(kind, "", cur)
	}
	return ""
}

// program: what follows is a command line of its own.
func (s *suggester) program() bool {
	n := s.node.Positional
	return len(n) > 0 && n[len(n)-1].Passthrough && len(s.args) >= len(n)-1
}

// positional is the argument that is being typed, nil if there is none.
func (s *suggester) positional() *kong.Positional {
	n := s.node.Positional
	if len(n) == 0 || len(s.args) >= len(n) && !n[len(n)-1].IsCumulative() {
		return nil
	}
	return n[min(len(s.args), len(n)-1)]
}

func takesValue(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// flagOf finds the flag of a word; here: its value is in the same word.
func (s *suggester) flagOf(w string) (flag *kong.Flag, value string, here bool) {
	if name, ok := strings.CutPrefix(w, "--"); ok {
		name, value, here = strings.Cut(name, "=")
		for _, f := range s.flags {
			if f.Name == name {
				return f, value, here
			}
		}
		return nil, value, here
	}
	letters := []rune(w[1:])
	for i, letter := range letters {
		at := slices.IndexFunc(s.flags, func(f *kong.Flag) bool { return f.Short == letter })
		if at < 0 {
			return nil, "", false
		}
		if takesValue(s.flags[at]) {
			return s.flags[at], string(letters[i+1:]), i+1 < len(letters)
		}
	}
	return nil, "", false
}

// use notes what a flag says about the daemon to ask.
func (s *suggester) use(f *kong.Flag, value string) {
	if home := s.inv.getenv("HOME"); home != "" && strings.HasPrefix(value, "~/") {
		value = filepath.Join(home, value[2:])
	}
	switch f.Name {
	case "url":
		s.inv.flags.URL = value
	case "token":
		s.inv.flags.Token = value
	case "state-dir":
		s.inv.flags.StateDir = value
	case "sandbox":
		s.inv.sandbox = value
	}
}

// places are the sandboxes, or what they are made from, or the services.
func (s *suggester) places(kind string) (words []word) {
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
		for i := range all {
			words = append(words, word{nameOfSandbox(&all[i]), all[i].State.String()})
		}
	case "snapshot":
		all, _ := d.SandboxSnapshots(ctx)
		for i := range all {
			words = append(words, word{nameOfSnapshot(&all[i]), all[i].State.String()})
		}
	case "service":
		all, _ := d.Services(ctx)
		for i := range all {
			words = append(words, word{all[i].Name, all[i].Phase.String()})
		}
	case "template":
		all, _ := d.Templates(ctx)
		for i := range all {
			words = append(words, word{all[i].Name, strings.Join(all[i].Tags, ", ")})
		}
	}
	return slices.DeleteFunc(words, func(w word) bool { return slices.Contains(s.args, w.text) })
}

func (s *suggester) childOf(w string) *kong.Node {
	if len(s.args) > 0 {
		return nil
	}
	for _, n := range s.node.Children {
		if n.Type == kong.CommandNode && !n.Hidden && (n.Name == w || slices.Contains(n.Aliases, w)) {
			return n
		}
	}
	return nil
}

func (s *suggester) verbs() []word {
	var words []word
	for _, n := range s.node.Children {
		if n.Type == kong.CommandNode && !n.Hidden {
			words = append(words, word{n.Name, n.Help})
		}
	}
	return words
}

func (s *suggester) options() []word {
	var words []word
	for _, f := range s.flags {
		if f.Hidden {
			continue
		}
		words = append(words, word{"--" + f.Name, f.Help})
		if f.Short != 0 {
			words = append(words, word{"-" + string(f.Short), f.Help})
		}
	}
	return words
}

// value completes the value of a flag, which begins after prefix in its word.
func (s *suggester) value(f *kong.Flag, prefix, cur string) string {
	kind := f.Tag.Get("complete")
	switch {
	case kind == "" && f.Enum != "":
		return s.offer(prefix, cur, plain(f.EnumSlice()...))
	case kind == "" && f.PlaceHolder == "DIR":
		kind = "dirs"
	case kind == "" && (f.PlaceHolder == "FILE" || f.PlaceHolder == "PATH"):
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
		s.node = s.inv.model.Node
		for _, w := range s.args {
			args := s.args
			s.args = nil
			if child := s.childOf(w); child != nil {
				s.node = child
			}
			s.args = args
		}
		return s.offer(prefix, cur, s.verbs())
	case "sandbox", "snapshot", "template", "service":
		return s.offer(prefix, cur, s.places(kind))
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
	slices.SortStableFunc(all, func(a, b process.Info) int { return cmp.Compare(ended(&a), ended(&b)) })
	for _, i := range all {
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

func ended(i *process.Info) int {
	if i.Exit != nil {
		return 1
	}
	return 0
}

// processes asks the daemon that the command line means; none is no error.
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

func plain(texts ...string) []word {
	var words []word
	for _, t := range texts {
		words = append(words, word{t, ""})
	}
	return words
}

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
