package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCmd) Run(inv *invocation) error {
	words := vocabularyOf(inv.model)
	switch c.Shell {
	case "bash":
		return words.bash(inv.out)
	case "zsh":
		return words.zsh(inv.out)
	}
	return words.fish(inv.out)
}

// vocabulary is what can be completed, taken from the grammar so that it
// cannot differ from it.
type vocabulary struct {
	global   []flagWord
	commands []commandWord
}

type commandWord struct {
	name, help string
	flags      []flagWord
	// ids: its arguments are processes.
	ids bool
	// choices of its first argument.
	choices []string
	// program: its arguments are a command line of its own.
	program bool
}

type flagWord struct {
	long, short, help string
	value             bool // takes one
	file              bool // which is a file or directory
}

func vocabularyOf(app *kong.Application) vocabulary {
	v := vocabulary{global: flagWords(app.Flags)}
	for _, n := range app.Children {
		if n.Hidden || n.Type != kong.CommandNode {
			continue
		}
		c := commandWord{name: n.Name, help: n.Help, flags: flagWords(n.Flags)}
		for i, p := range n.Positional {
			c.ids = c.ids || p.Name == "id"
			c.program = c.program || p.Passthrough
			if i == 0 && p.Enum != "" {
				c.choices = strings.Split(p.Enum, ",")
			}
		}
		v.commands = append(v.commands, c)
	}
	return v
}

func flagWords(flags []*kong.Flag) []flagWord {
	var words []flagWord
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		w := flagWord{long: f.Name, help: f.Help, value: !f.IsBool() && !f.IsCounter()}
		if f.Short != 0 {
			w.short = string(f.Short)
		}
		switch f.PlaceHolder {
		case "DIR", "FILE", "PATH":
			w.file = true
		}
		words = append(words, w)
	}
	return words
}

// options returns all flags as they are typed.
func options(words []flagWord) []string {
	var all []string
	for _, w := range words {
		all = append(all, "--"+w.long)
		if w.short != "" {
			all = append(all, "-"+w.short)
		}
	}
	return all
}

// withValue returns the flags, as typed, that the next word belongs to.
func withValue(words []flagWord) []string {
	var all []string
	for _, w := range words {
		if w.value {
			all = append(all, options([]flagWord{w})...)
		}
	}
	return all
}

func (v vocabulary) bash(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# bash completion of tend; use: source <(tend completion bash)\n_tend() {\n")
	b.WriteString("  local cur=${COMP_WORDS[COMP_CWORD]} prev= cmd= i w skip=\n")
	b.WriteString("  (( COMP_CWORD > 0 )) && prev=${COMP_WORDS[COMP_CWORD-1]}\n")
	b.WriteString("  for (( i = 1; i < COMP_CWORD; i++ )); do\n    w=${COMP_WORDS[i]}\n")
	b.WriteString("    if [[ -n $skip ]]; then skip=; continue; fi\n")
	fmt.Fprintf(&b, "    case $w in %s) skip=1;; -*) ;; *) cmd=$w; break;; esac\n  done\n", strings.Join(withValue(v.global), "|"))
	b.WriteString("  COMPREPLY=()\n  case $cmd in\n")
	names := []string{}
	for _, c := range v.commands {
		names = append(names, c.name)
	}
	fmt.Fprintf(&b, "  '') COMPREPLY=( $(compgen -W '%s' -- \"$cur\") );;\n", strings.Join(append(names, options(v.global)...), " "))
	for _, c := range v.commands {
		flags := append(append([]flagWord{}, c.flags...), v.global...)
		fmt.Fprintf(&b, "  %s)\n", c.name)
		if takes := withValue(flags); len(takes) > 0 {
			fmt.Fprintf(&b, "    case $prev in %s) COMPREPLY=( $(compgen -f -- \"$cur\") ); return;; esac\n", strings.Join(takes, "|"))
		}
		fmt.Fprintf(&b, "    if [[ $cur == -* ]]; then COMPREPLY=( $(compgen -W '%s' -- \"$cur\") ); return; fi\n", strings.Join(options(flags), " "))
		switch {
		case c.ids:
			b.WriteString("    COMPREPLY=( $(compgen -W \"$(tend ps -aq 2>/dev/null)\" -- \"$cur\") );;\n")
		case len(c.choices) > 0:
			fmt.Fprintf(&b, "    COMPREPLY=( $(compgen -W '%s' -- \"$cur\") );;\n", strings.Join(c.choices, " "))
		case c.program:
			b.WriteString("    COMPREPLY=( $(compgen -c -- \"$cur\") );;\n")
		default:
			b.WriteString("    ;;\n")
		}
	}
	b.WriteString("  esac\n}\ncomplete -o default -F _tend tend\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// zshText quotes text for the inside of '…[…]' of _arguments and _describe.
func zshText(s string) string {
	return strings.NewReplacer(`'`, `'\''`, `[`, `\[`, `]`, `\]`, `:`, `\:`).Replace(s)
}

func (v vocabulary) zsh(w io.Writer) error {
	var b strings.Builder
	b.WriteString("#compdef tend\n# zsh completion of tend; use: source <(tend completion zsh)\n")
	b.WriteString("_tend_ids() { local -a ids; ids=(${(f)\"$(tend ps -aq 2>/dev/null)\"}); compadd -a ids }\n_tend() {\n")
	b.WriteString("  local -a commands\n  commands=(\n")
	for _, c := range v.commands {
		fmt.Fprintf(&b, "    '%s:%s'\n", c.name, zshText(c.help))
	}
	b.WriteString("  )\n  local curcontext=$curcontext state line\n  _arguments -C \\\n")
	for _, spec := range zshFlags(v.global) {
		fmt.Fprintf(&b, "    %s \\\n", spec)
	}
	b.WriteString("    '1:command:->command' '*::argument:->argument'\n")
	b.WriteString("  case $state in\n  command) _describe command commands;;\n  argument)\n    case $words[1] in\n")
	for _, c := range v.commands {
		specs := zshFlags(append(append([]flagWord{}, c.flags...), v.global...))
		switch {
		case c.ids:
			specs = append(specs, "'*:process:_tend_ids'")
		case len(c.choices) > 0:
			specs = append(specs, fmt.Sprintf("'1:choice:(%s)'", strings.Join(c.choices, " ")))
		case c.program:
			specs = append(specs, "'*::program:_normal'")
		}
		fmt.Fprintf(&b, "    %s) _arguments %s;;\n", c.name, strings.Join(specs, " "))
	}
	b.WriteString("    esac;;\n  esac\n}\nif [[ $funcstack[1] == _tend ]]; then _tend \"$@\"; else compdef _tend tend; fi\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func zshFlags(words []flagWord) []string {
	var specs []string
	for _, f := range words {
		value := ""
		switch {
		case f.file:
			value = ":file:_files"
		case f.value:
			value = ":value:"
		}
		text := fmt.Sprintf("[%s]%s", zshText(f.help), value)
		specs = append(specs, fmt.Sprintf("'--%s%s'", f.long, text))
		if f.short != "" {
			specs = append(specs, fmt.Sprintf("'-%s%s'", f.short, text))
		}
	}
	return specs
}

func (v vocabulary) fish(w io.Writer) error {
	var b strings.Builder
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }
	b.WriteString("# fish completion of tend; use: tend completion fish | source\n")
	flags := func(when string, words []flagWord) {
		for _, f := range words {
			fmt.Fprintf(&b, "complete -c tend%s -l %s", when, f.long)
			if f.short != "" {
				fmt.Fprintf(&b, " -s %s", f.short)
			}
			switch {
			case f.file:
				b.WriteString(" -r -F")
			case f.value:
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d %s\n", quote(f.help))
		}
	}
	flags("", v.global)
	for _, c := range v.commands {
		fmt.Fprintf(&b, "complete -c tend -f -n __fish_use_subcommand -a %s -d %s\n", c.name, quote(c.help))
		when := fmt.Sprintf(" -n '__fish_seen_subcommand_from %s'", c.name)
		flags(when, c.flags)
		switch {
		case c.ids:
			fmt.Fprintf(&b, "complete -c tend%s -f -a '(tend ps -aq 2>/dev/null)'\n", when)
		case len(c.choices) > 0:
			fmt.Fprintf(&b, "complete -c tend%s -f -a %s\n", when, quote(strings.Join(c.choices, " ")))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
