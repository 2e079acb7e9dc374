package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// fieldsOf returns the fields of a struct that a file can give, by key, and the keys
// in their order.
func fieldsOf(t reflect.Type) (map[string]reflect.StructField, []string) {
	fields, keys := map[string]reflect.StructField{}, []string{}
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("key"); key != "" && key != "-" {
			fields[key], keys = t.Field(i), append(keys, key)
		}
	}
	return fields, keys
}

// structure reads a mapping into a struct. A struct with a field that is marked
// "short" may be written as that field alone.
func (d *decoder) structure(n ast.Node, v reflect.Value) {
	fields, keys := fieldsOf(v.Type())
	for _, key := range keys {
		d.setDefault(v, fields[key])
	}
	n = d.plain(n)
	if n == nil {
		return
	}
	if _, ok := n.(ast.MapNode); !ok {
		for _, key := range keys {
			if f := fields[key]; f.Tag.Get("short") != "" {
				d.notePlace(n)
				d.at(key, func() {
					d.notePlace(n)
					d.value(n, v.FieldByIndex(f.Index), f)
				})
				return
			}
		}
	}
	all, ok := d.entries(n, "a mapping with some of "+strings.Join(keys, ", "))
	if !ok {
		return
	}
	d.notePlace(n)
	given := map[string]bool{}
	for _, e := range all {
		f, known := fields[e.key]
		if !known {
			if len(d.path) == 0 && strings.HasPrefix(e.key, "x-") {
				continue
			}
			d.at(e.key, func() { d.fail(e.node, unknown(e.key, keys)) })
			continue
		}
		given[e.key] = true
		d.at(e.key, func() {
			d.notePlace(e.val)
			d.value(e.val, v.FieldByIndex(f.Index), f)
		})
	}
	for _, key := range keys {
		tag := fields[key].Tag.Get("required")
		other, either := strings.CutPrefix(tag, unless)
		switch {
		case tag == "" || given[key] || given[other]:
		case either:
			d.fail(n, "needs the key "+key+", or "+other)
		default:
			d.fail(n, "needs the key "+key)
		}
	}
}

// unless begins the mark of a field that is needed if another one is not given.
const unless = "unless "

func unknown(said string, keys []string) string {
	if near := nearest(said, keys); near != "" {
		return "is no key that is known; did you mean " + near + "?"
	}
	return "is no key that is known; there are " + strings.Join(keys, ", ")
}

// notePlace notes where the value of the current path is.
func (d *decoder) notePlace(n ast.Node) { d.places[strings.Join(d.path, ".")] = n }

// setDefault gives a field its default. A struct within gets those of its fields.
func (d *decoder) setDefault(v reflect.Value, f reflect.StructField) {
	to := v.FieldByIndex(f.Index)
	if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Command]() {
		fields, keys := fieldsOf(f.Type)
		for _, key := range keys {
			d.setDefault(to, fields[key])
		}
		return
	}
	text := d.defaultOf(f)
	if text == "" {
		return
	}
	if to.Kind() == reflect.Slice {
		for _, word := range strings.Split(text, ",") {
			one := reflect.New(to.Type().Elem()).Elem()
			_ = setWord(word, one) // the tests read every default
			to.Set(reflect.Append(to, one))
		}
		return
	}
	_ = setWord(text, to)
}

// value reads one value into v, which is a field or an element of one.
func (d *decoder) value(n ast.Node, v reflect.Value, f reflect.StructField) {
	n = d.plain(n)
	if n == nil {
		return
	}
	switch to := v.Addr().Interface().(type) {
	case *Command:
		d.command(n, to)
		return
	case *Dependencies:
		d.dependencies(n, to)
		return
	case *Sockets:
		d.sockets(n, to)
		return
	case *Strings:
		if text, ok := d.text(n); ok {
			*to = Strings{text}
			return
		}
	}
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.structure(n, v.Elem())
	case v.Kind() == reflect.Struct:
		d.structure(n, v)
	case v.Kind() == reflect.Slice:
		d.list(n, v, f)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, f)
	default:
		d.word(n, v, f)
	}
}

func (d *decoder) list(n ast.Node, v reflect.Value, f reflect.StructField) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fail(n, "is "+kindOf(n)+"; a list is wanted")
		return
	}
	values := d.sequence(seq)
	v.Set(reflect.MakeSlice(v.Type(), len(values), len(values)))
	for i, one := range values {
		d.at(strconv.Itoa(i), func() {
			d.notePlace(one)
			d.value(one, v.Index(i), f)
		})
	}
}

// mapping reads values by name: services, variables, headers.
func (d *decoder) mapping(n ast.Node, v reflect.Value, f reflect.StructField) {
	all, ok := d.entries(n, "a mapping")
	if !ok {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range all {
		d.at(e.key, func() {
			if why := badName(e.key, f.Tag.Get("names")); why != "" {
				d.fail(e.node, why)
				return
			}
			d.notePlace(e.node)
			one := reflect.New(v.Type().Elem()).Elem()
			if one.Kind() == reflect.String {
				d.word(d.plain(e.val), one, f)
			} else {
				d.value(e.val, one, reflect.StructField{})
			}
			v.SetMapIndex(reflect.ValueOf(e.key), one)
		})
	}
}

// MaxNameLen bounds the name of a service in bytes.
const MaxNameLen = 63

// ServiceName reports what is wrong with the name of a service; "": nothing.
func ServiceName(name string) string { return badName(name, "") }

func badName(name, kind string) string {
	switch kind {
	case "env":
		if name == "" || len(name) > 1000 || strings.ContainsAny(name, "=\x00") {
			return "is no name for a variable: it is not empty, and has no '=' and no NUL byte"
		}
		return ""
	case "header":
		if name == "" || len(name) > 1000 || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "is no name of a header"
		}
		return ""
	case "socket":
		if badName(name, "") != "" {
			return fmt.Sprintf("is no name for a socket: it has 1 to %d letters, digits, '-', '_' and '.', and begins with a letter or digit",
				MaxNameLen)
		}
		return ""
	}
	if name == "" || len(name) > MaxNameLen || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" ||
		strings.ContainsAny(name[:1], "-_.") {
		return fmt.Sprintf("is no name for a service: it has 1 to %d letters, digits, '-', '_' and '.', and begins with a letter or digit",
			MaxNameLen)
	}
	return ""
}

// word reads a scalar.
func (d *decoder) word(n ast.Node, v reflect.Value, f reflect.StructField) {
	if n == nil {
		return
	}
	text, ok := d.text(n)
	if !ok {
		hint := "a word"
		if enum := f.Tag.Get("enum"); enum != "" {
			hint = "one of " + strings.ReplaceAll(enum, ",", ", ")
		} else if v.Kind() == reflect.String && f.Tag.Get("names") == "env" {
			hint = `a text ("" for an empty one)`
		}
		d.fail(n, "is "+kindOf(n)+"; "+hint+" is wanted")
		return
	}
	if strings.IndexByte(text, 0) >= 0 {
		d.fail(n, "has a NUL byte")
		return
	}
	if enum := f.Tag.Get("enum"); enum != "" && v.Kind() == reflect.String {
		words := strings.Split(enum, ",")
		if !slices.Contains(words, text) {
			hint := ""
			if near := nearest(text, words); near != "" {
				hint = "; did you mean " + near + "?"
			}
			d.fail(n, fmt.Sprintf("is %q; it is one of %s%s", text, strings.Join(words, ", "), hint))
			return
		}
	}
	if err := setWord(text, v); err != nil {
		d.fail(n, err.Error())
		return
	}
	if why := outside(v, f); why != "" {
		d.fail(n, why)
	}
}

// setWord reads a text into a value of a kind that is written as one word.
func setWord(text string, v reflect.Value) error {
	if s, ok := v.Addr().Interface().(scalar); ok {
		return s.parse(text)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		switch text {
		case "true", "True", "TRUE":
			v.SetBool(true)
		case "false", "False", "FALSE":
			v.SetBool(false)
		default:
			return fmt.Errorf("is %q; true or false is wanted", text)
		}
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("is %q; a whole number is wanted", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("is %q; a number is wanted", text)
		}
		v.SetFloat(n)
	default:
		return fmt.Errorf("is of a kind that is not read: %s", v.Kind())
	}
	return nil
}

// outside says how a number misses its bounds; "": it does not.
func outside(v reflect.Value, f reflect.StructField) string {
	bound := func(tag string) (reflect.Value, bool) {
		text := f.Tag.Get(tag)
		b := reflect.New(v.Type()).Elem()
		return b, text != "" && setWord(text, b) == nil
	}
	less := func(a, b reflect.Value) bool { // false for NaN, whatever b is
		if v.CanInt() {
			return a.Int() < b.Int()
		}
		return !(a.Float() >= b.Float())
	}
	if !v.CanInt() && !v.CanFloat() {
		return ""
	}
	lo, hasLo := bound("min")
	hi, hasHi := bound("max")
	if !(hasLo && less(v, lo) || hasHi && less(hi, v)) {
		return ""
	}
	switch {
	case !hasHi:
		return fmt.Sprintf("is %v; at least %s is allowed", v.Interface(), f.Tag.Get("min"))
	case !hasLo:
		return fmt.Sprintf("is %v; at most %s is allowed", v.Interface(), f.Tag.Get("max"))
	}
	return fmt.Sprintf("is %v; %s to %s are allowed", v.Interface(), f.Tag.Get("min"), f.Tag.Get("max"))
}

func (d *decoder) command(n ast.Node, c *Command) {
	if text, ok := d.text(n); ok {
		if c.Line = text; strings.TrimSpace(text) == "" {
			d.fail(n, "is an empty line; write a command, or a list of words")
		}
		if strings.IndexByte(text, 0) >= 0 {
			d.fail(n, "has a NUL byte")
		}
		return
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fail(n, "is "+kindOf(n)+"; a line or a list of words is wanted")
		return
	}
	for i, one := range d.sequence(seq) {
		d.at(strconv.Itoa(i), func() {
			word := ""
			d.word(d.plain(one), reflect.ValueOf(&word).Elem(), reflect.StructField{})
			c.Argv = append(c.Argv, word)
		})
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		d.fail(n, "names no program")
	}
}

// condition is the long form of a dependency.
type condition struct {
	Condition string  `key:"condition" short:"yes" enum:"ready,started,completed" default:"ready" doc:"Required state of the other service: ready, started, or completed (ended with success)."`
	Log       Pattern `key:"log" doc:"Instead of condition: a line of its output matches this RE2 expression."`
	Restart   bool    `key:"restart" default:"false" doc:"A restart of the other service also restarts this one."`
}

func (d *decoder) dependencies(n ast.Node, to *Dependencies) {
	if seq, ok := n.(*ast.SequenceNode); ok {
		seen := map[string]bool{}
		for i, one := range d.sequence(seq) {
			d.at(strconv.Itoa(i), func() {
				name := ""
				d.word(d.plain(one), reflect.ValueOf(&name).Elem(), reflect.StructField{})
				if seen[name] {
					d.fail(one, fmt.Sprintf("names %q again", name))
				}
				seen[name] = true
				d.path[len(d.path)-1] = name
				d.notePlace(one)
				*to = append(*to, Dependency{Service: name})
			})
		}
		to.sort()
		return
	}
	all, ok := d.entries(n, "a list of services, or a mapping of them to conditions")
	if !ok {
		return
	}
	for _, e := range all {
		d.at(e.key, func() {
			var c condition
			d.structure(e.val, reflect.ValueOf(&c).Elem())
			d.notePlace(e.node)
			dep := Dependency{Service: e.key, Restart: c.Restart, Log: string(c.Log)}
			if at := slices.Index(conditionNames[:], c.Condition); at >= 0 {
				dep.Condition = Condition(at)
			}
			if c.Log != "" {
				dep.Condition = LogLine
			}
			*to = append(*to, dep)
		})
	}
	to.sort()
}

func (d Dependencies) sort() {
	slices.SortStableFunc(d, func(a, b Dependency) int { return strings.Compare(a.Service, b.Service) })
}

// given reports whether the file itself has a value at this path.
func (d *decoder) given(path string) bool { _, ok := d.places[path]; return ok }
