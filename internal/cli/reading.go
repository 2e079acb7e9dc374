package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/typo"
)

// reading is a command line as far as it is understood. Flags may stand before and after
// arguments; "--" ends them. A value that begins with "-" is written as --flag=-value, for
// it is more likely that a value is missing.
type reading struct {
	node    *node
	args    []string // of the verb
	rest    []string // of args: the command line of a program
	typing  bool     // it is not complete: what is wrong in it is passed over
	pending *param   // typing: the flag whose value is missing
}

// unknownFlag is the error for a flag that the verb does not have.
type unknownFlag struct{ flag, text string }

func (e unknownFlag) Error() string { return e.text }

// read understands words, and sets the values that they give.
func (r *reading) read(words []string) error {
	flags := true // "--" ends them
	for i := 0; i < len(words); i++ {
		w := words[i]
		if flags && w != "--" && isFlag(w) {
			if v, ok := r.node.value.Addr().Interface().(interface{ asUsual(string) string }); ok {
				w = v.asUsual(w)
			}
			took, err := r.option(w, words[i+1:])
			if took {
				i++
			}
			if err == nil || r.typing {
				continue
			}
			unknown, is := errors.AsType[unknownFlag](err)
			if !is || !r.atProgram() {
				return err
			}
			words = slices.Concat(words[:i], []string{unknown.flag}, words[i+1:])
		}
		switch {
		case r.atProgram():
			p := r.node.args[len(r.node.args)-1]
			for _, word := range words[i:] {
				_ = p.set(word) // a list of strings takes all
			}
			r.args, r.rest = append(r.args, words[i:]...), words[i:]
			return nil
		case flags && w == "--":
			flags = false
		default:
			if err := r.word(w); err != nil && !r.typing {
				return err
			}
		}
	}
	return nil
}

func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

// atProgram: the next word that is no flag begins the command line of a program.
func (r *reading) atProgram() bool {
	n := len(r.node.args)
	return n > 0 && n == len(r.args)+1 && r.node.args[n-1].has("passthrough")
}

// next is the argument that the next word is for, nil if there is none.
func (r *reading) next() *param {
	args := r.node.args
	if n := len(args); n == 0 || len(r.args) >= n && !args[n-1].several() {
		return nil
	}
	return args[min(len(r.args), len(args)-1)]
}

// word understands a word that is no flag.
func (r *reading) word(w string) error {
	at := r.node
	if verb := at.verb(w); verb != nil {
		r.node = verb
		if at.meant == nil || at.meant == verb || r.typing {
			return nil
		}
		for _, f := range at.meant.flags {
			if f.given {
				r.node = at
				return fmt.Errorf("flag --%s applies to the default command %q, not %q", f.name, at.meant.name, verb.name)
			}
		}
		return nil
	}
	if at.meant != nil {
		at, r.node = at.meant, at.meant
	}
	p := r.next()
	r.args = append(r.args, w)
	switch {
	case p != nil:
		return p.set(w)
	case at.parent == nil:
		return at.noVerb(w)
	}
	var names []string
	for _, v := range at.shown() {
		names = append(names, v.name)
	}
	return errors.New(nearly("unexpected argument "+w, w, names))
}

// option understands a word of flags. took: the word after it is the value of the last one.
func (r *reading) option(w string, after []string) (took bool, err error) {
	if strings.HasPrefix(w, "--") {
		name, value, has := strings.Cut(w, "=")
		return r.give(name, value, has, after)
	}
	for letters := []rune(w[1:]); len(letters) > 0; letters = letters[1:] {
		name, tail := "-"+string(letters[0]), string(letters[1:])
		if f := r.node.option(name); tail == "" || f != nil && f.takesValue() {
			return r.give(name, tail, tail != "", after)
		}
		if _, err := r.give(name, "", false, nil); err != nil {
			return false, err
		}
	}
	return false, nil
}

// give gives a flag the value that stands in its word, or the word after it.
func (r *reading) give(name, value string, has bool, after []string) (took bool, err error) {
	f := r.node.option(name)
	if f == nil && r.node.parent == nil && !has && len(after) > 1 && r.node.verb(after[0]) == nil && r.node.verb(after[1]) != nil {
		return false, fmt.Errorf("%q is no verb; flags of a verb come after it: tend %s %s %s", after[0], after[1], name, after[0])
	}
	if f == nil {
		var known []string
		for _, f := range visible(r.node.options()) {
			known = append(known, f.spellings()...)
		}
		return false, unknownFlag{name, nearly("unknown flag "+name, name, known)}
	}
	switch {
	case has:
	case !f.takesValue():
		value = "true"
	case len(after) == 0:
		r.pending = f
		return false, fmt.Errorf("%s: a value is missing", f.summary())
	case isFlag(after[0]) && !r.typing:
		return false, fmt.Errorf("%s: a value is missing; if it is %[2]q, write %[1]s=%[2]q", f.summary(), after[0])
	default:
		value, took = after[0], true
	}
	return took, f.set(value)
}

// nearly adds to an error what may have been meant by word.
func nearly(text, word string, known []string) string {
	const longest = 64 // typo.Distance wants a bound
	var near []string
	for _, k := range known {
		if strings.HasPrefix(k, word) || len(word) <= longest && typo.Distance(k, word) <= typos(word) {
			near = append(near, strconv.Quote(k))
		}
	}
	switch len(near) {
	case 0:
		return text
	case 1:
		return text + ", did you mean " + near[0] + "?"
	}
	return text + ", did you mean one of " + strings.Join(near, ", ") + "?"
}

// finish gives what was not given its value from the environment or the grammar, and
// reports what is wrong with the whole.
func (r *reading) finish(getenv func(string) string) error {
	if r.node.meant != nil {
		r.node = r.node.meant
	}
	for _, n := range r.node.line() {
		for _, p := range slices.Concat(n.flags, n.args) {
			value, has := p.tag.Lookup("default")
			if p.has("env") && getenv(p.get("env")) != "" {
				value, has = getenv(p.get("env")), true
			}
			if has && !p.given {
				if err := p.set(value); err != nil {
					return err
				}
			}
			if err := p.check(); err != nil {
				return err
			}
		}
	}
	if err := r.missing(); err != nil {
		return err
	}
	chosen := map[string]*param{}
	for _, f := range r.node.flags {
		if xor := f.get("xor"); xor != "" && f.given {
			if other := chosen[xor]; other != nil {
				return fmt.Errorf("--%s and --%s can't be used together", other.name, f.name)
			}
			chosen[xor] = f
		}
	}
	return nil
}

// missing reports the arguments, or the verb, without which the verb does nothing.
func (r *reading) missing() error {
	var args, all []string
	for _, a := range r.node.args {
		if a.required() && !a.given {
			args = append(args, a.summary())
		}
	}
	if args != nil {
		all = []string{strconv.Quote(strings.Join(args, " "))}
	}
	for _, v := range r.node.shown() {
		all = append(all, strconv.Quote(v.name))
	}
	const most = 5
	switch {
	case len(all) == 0:
		return nil
	case len(all) == 1:
		return errors.New("expected " + all[0])
	case len(all) > most:
		all = append(all[:most], "...")
	}
	return errors.New("expected one of " + strings.Join(all, ", "))
}
