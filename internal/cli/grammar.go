package cli

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// The command line is declared by structs: grammar, and the type of each verb. An exported
// field is a flag or, by its tags, an argument or a verb; the fields of an embedded struct
// belong to the struct around it. What is accepted, help, completion and the manual pages
// all come from these tags, and a test knows no others:
//
//	name         what it is called; else the field's name in lower case
//	aliases      other names of a verb or a flag, separated by commas
//	help         what it is, in a sentence
//	short        the letter of a flag
//	placeholder  what help shows for the value of a flag
//	default      the value if none is given
//	env          the environment variable with the value, if no flag gives it
//	enum         the values that are accepted, separated by commas
//	sep          what separates values in a word: the flag is a list
//	xor          of the flags with the same xor, one may be given
//	arg          it is an argument
//	optional     the argument may be left out, as one with a default may
//	passthrough  the argument begins the command line of a program, where no flag is tend's
//	cmd          it is a verb; with a default, it is meant if none beside it is named
//	group        the heading in help above a verb and those after it
//	hidden       neither help nor completion shows it
//	complete     what its words may be (see suggester)
//	nojson       why a verb has no JSON form, and what to use
//	signals      the signals that end the context of a verb; any others end the program
//
// A verb is read when a command line needs it, for the daemon's clients wait while its
// server starts.

// item is a field of the grammar.
type item struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

func (i *item) has(tag string) bool {
	_, ok := i.tag.Lookup(tag)
	return ok
}

func (i *item) get(tag string) string { return i.tag.Get(tag) }

// list returns the words of a tag.
func (i *item) list(tag string) []string {
	text, ok := i.tag.Lookup(tag)
	if !ok {
		return nil
	}
	return strings.Split(text, ",")
}

// node is a verb, or the whole program.
type node struct {
	item
	parent *node
	group  string
	opened bool

	// These are of an opened node.
	flags, args []*param
	verbs       []*node
	meant       *node // the verb that is meant if none is named, or nil
}

// program is the whole command line, of which a grammar keeps the values.
func program(g *grammar) *node {
	return (&node{item: item{name: "tend", value: reflect.ValueOf(g).Elem()}}).open()
}

// open reads the fields of a node, once.
func (n *node) open() *node {
	if !n.opened {
		n.opened = true
		n.read(n.value)
	}
	return n
}

func (n *node) read(fields reflect.Value) {
	group := n.group
	for field, value := range fields.Fields() {
		i := item{cmp.Or(field.Tag.Get("name"), strings.ToLower(field.Name)), field.Tag, value}
		switch {
		case field.Anonymous:
			n.read(value)
		case !field.IsExported():
		case i.has("cmd"):
			group = cmp.Or(i.get("group"), group)
			verb := &node{item: i, parent: n, group: group}
			if n.verbs = append(n.verbs, verb); i.has("default") {
				n.meant = verb.open()
			}
		case i.has("arg"):
			n.args = append(n.args, &param{item: i})
		default:
			n.flags = append(n.flags, &param{item: i, flag: true})
		}
	}
}

// line is the program and the verbs down to n.
func (n *node) line() []*node {
	if n == nil {
		return nil
	}
	return append(n.parent.line(), n)
}

// path is what a command line for n begins with.
func (n *node) path() string {
	if n.parent == nil {
		return n.name
	}
	return n.parent.path() + " " + n.name
}

// verb finds a verb by its name or an alias; a name goes before an alias.
func (n *node) verb(word string) *node {
	for _, called := range []func(*node) bool{
		func(v *node) bool { return v.name == word },
		func(v *node) bool { return slices.Contains(v.list("aliases"), word) },
	} {
		if at := slices.IndexFunc(n.verbs, called); at >= 0 {
			return n.verbs[at].open()
		}
	}
	return nil
}

// signals are those that end the verb's context.
func (n *node) signals() (all []os.Signal) {
	for _, name := range n.list("signals") {
		all = append(all, syscall.Signal(process.SignalNumber(name)))
	}
	return all
}

// find returns the verb that is named by words, else the last one that is, and an error.
func (n *node) find(words []string) (*node, error) {
	for _, word := range words {
		verb := n.verb(word)
		if verb == nil {
			return n, n.noVerb(word)
		}
		n = verb
	}
	return n, nil
}

// shown are the verbs that are not hidden.
func (n *node) shown() []*node {
	return slices.DeleteFunc(slices.Clone(n.verbs), func(v *node) bool { return v.has("hidden") })
}

// visible are the flags that are not hidden.
func visible(flags []*param) []*param {
	return slices.DeleteFunc(slices.Clone(flags), func(f *param) bool { return f.has("hidden") })
}

// options are the flags that may stand at n: those of the program, of each verb down to n,
// and of the verb that is meant if none is named.
func (n *node) options() (all []*param) {
	for _, n := range n.line() {
		all = append(all, n.flags...)
	}
	if n.meant != nil {
		all = append(all, n.meant.flags...)
	}
	return all
}

// option finds the flag that is written as word: --name or -n.
func (n *node) option(word string) *param {
	for _, f := range n.options() {
		if slices.Contains(f.spellings(), word) {
			return f
		}
	}
	return nil
}

// param is a flag or an argument.
type param struct {
	item
	flag  bool
	given bool // it has a value: of the command line, the environment or its default
}

// takesValue: a flag that takes none is true where it stands.
func (p *param) takesValue() bool { return p.value.Kind() != reflect.Bool }

// several: each word adds to its value.
func (p *param) several() bool {
	return p.value.Kind() == reflect.Slice || p.value.Kind() == reflect.Map
}

func (p *param) required() bool { return !p.flag && !p.has("optional") && !p.has("default") }

// term is a flag as help shows it.
func (p *param) term() string {
	text := "--" + p.name
	if p.takesValue() {
		text += "=" + p.get("placeholder")
	}
	if sep := p.get("sep"); sep != "" {
		text += sep + "..."
	}
	if p.has("short") {
		text = "-" + p.get("short") + ", " + text
	}
	return text
}

// spellings are all the ways to write a flag.
func (p *param) spellings() []string {
	all := []string{"--" + p.name}
	if p.has("short") {
		all = append(all, "-"+p.get("short"))
	}
	for _, alias := range p.list("aliases") {
		all = append(all, "--"+alias)
	}
	return all
}

// summary is what errors call it, and the usage of a verb its arguments.
func (p *param) summary() string {
	if p.flag {
		return "--" + p.name
	}
	text := "<" + p.name + ">"
	if p.several() {
		text += " ..."
	}
	if !p.required() {
		text = "[" + text + "]"
	}
	return text
}

// set gives it the value that a word stands for.
func (p *param) set(word string) (err error) {
	p.given = true
	wrong := func(what string) error { return fmt.Errorf("expected %s but got %q", what, word) }
	switch v := p.value.Addr().Interface().(type) {
	case *string:
		*v = word
	case *[]string:
		if sep := p.get("sep"); sep != "" {
			*v = append(*v, strings.FieldsFunc(word, func(r rune) bool { return string(r) == sep })...)
		} else {
			*v = append(*v, word)
		}
	case *map[string]string:
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			err = wrong(`"<key>=<value>"`)
		} else if *v == nil {
			*v = map[string]string{key: value}
		} else {
			(*v)[key] = value
		}
	case *bool:
		switch strings.ToLower(word) {
		case "true", "1", "yes":
			*v = true
		case "false", "0", "no":
			*v = false
		default:
			err = fmt.Errorf("bool value must be true, 1, yes, false, 0 or no but got %q", word)
		}
	case *time.Duration:
		if *v, err = duration(word); err != nil {
			err = fmt.Errorf("expected a duration, 10s or a number of seconds, but got %q: %v", word, err)
		}
	case *float64:
		if *v, err = strconv.ParseFloat(word, 64); err != nil {
			err = wrong("a float")
		}
	case *uint64:
		if *v, err = strconv.ParseUint(word, 0, 64); err != nil {
			err = wrong("a valid 64 bit uint")
		}
	default: // an int, an int64, or a pointer to one
		n, bad := strconv.ParseInt(word, 0, 64)
		if bad != nil {
			err = wrong("a valid 64 bit int")
		}
		value := p.value
		if value.Kind() == reflect.Pointer {
			value.Set(reflect.New(value.Type().Elem()))
			value = value.Elem()
		}
		value.SetInt(n)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.summary(), err)
	}
	return nil
}

// check reports a value that the enum does not have.
func (p *param) check() error {
	enum := p.list("enum")
	values, ok := p.value.Interface().([]string)
	if !ok {
		values = []string{fmt.Sprint(p.value)}
	}
	for _, v := range values {
		if p.given && enum != nil && !slices.Contains(enum, v) {
			return fmt.Errorf("%s must be one of %s but got %q", p.summary(), `"`+strings.Join(enum, `","`)+`"`, v)
		}
	}
	return nil
}

// duration reads 90s or 1h30m, 2d as days, and a number alone as seconds, as docker stop -t, timeout(1) and sleep(1) do.
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(n) < math.MaxInt64/float64(time.Second) {
		return time.Duration(n * float64(time.Second)), nil
	}
	return time.ParseDuration(text)
}
