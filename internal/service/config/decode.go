package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/tend-run/tend/internal/lib/yamldepth"
)

const (
	maxDepth   = 50    // of nested values
	maxAliases = 10000 // values that aliases stand for
	// textOfValue is how many bytes of a text count as a value: so all texts are 25 MiB at most.
	textOfValue = 256
)

// decoder reads one file.
type decoder struct {
	file     string
	dir      string // absolute, or empty: not known
	lines    []string
	preset   string
	anchors  map[string]ast.Node
	aliases  int
	values   int // that were read: see more
	path     []string
	problems Problems
	// places are where values were given, by path.
	places map[string]ast.Node
}

// parse reads the text of a file into c. The error is Problems.
func parse(file string, data []byte) (*Config, *decoder, error) {
	c := &Config{}
	d := newDecoder(file)
	if !d.decode(data, reflect.ValueOf(c).Elem(), "declare services") {
		return nil, d, d.sorted()
	}
	return c, d, nil
}

// Decode reads the text of another file as strictly as tend.yaml: into points to a
// struct with the same tags. check, if there is one, is called once the text alone is
// right; it calls fail with the path of a value ("when.log.0") and what is wrong with
// it. The error is Problems.
func Decode(file string, data []byte, into any, check func(fail func(path, text string))) error {
	d := newDecoder(file)
	if d.decode(data, reflect.ValueOf(into).Elem(), "see the documentation of such files") && check != nil {
		check(d.failAt)
	}
	if len(d.problems) > 0 {
		return d.sorted()
	}
	return nil
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, anchors: map[string]ast.Node{}, places: map[string]ast.Node{}}
}

// decode reads a text into a struct. It reports whether there were no problems; hint
// says what to do with an empty file.
func (d *decoder) decode(data []byte, into reflect.Value, hint string) bool {
	if !d.readable(data) {
		return false
	}
	if doc := d.read(data); doc != nil {
		d.choosePreset(doc)
		d.structure(doc, into)
	} else if len(d.problems) == 0 {
		d.report(0, 0, "is empty; "+hint)
	}
	return len(d.problems) == 0
}

// readable looks whether a text can be read at all, and keeps its lines.
func (d *decoder) readable(data []byte) bool {
	switch {
	case len(data) > MaxBytes:
		d.report(0, 0, fmt.Sprintf("has %d bytes; the limit is %d", len(data), MaxBytes))
		return false
	case !utf8.Valid(data):
		d.report(0, 0, "is no UTF-8 text")
		return false
	}
	d.lines = strings.Split(string(data), "\n")
	return true
}

// sorted are the problems in the order of the file.
func (d *decoder) sorted() Problems {
	slices.SortStableFunc(d.problems, func(a, b *Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return d.problems[:min(len(d.problems), MaxProblems)]
}

// read returns the one document of a file; nil: there is none, or a problem.
func (d *decoder) read(data []byte) (doc ast.Node) {
	defer func() {
		if v := recover(); v != nil { // of the library, for a text that is no YAML
			d.report(0, 0, fmt.Sprintf("is no YAML that can be read: %v", v))
			doc = nil
		}
	}()
	if err := yamldepth.Check(data); err != nil {
		if deep, ok := errors.AsType[*yamldepth.Error](err); ok {
			d.report(deep.Line, deep.Column, deep.Reason)
		}
		return nil
	}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		var e yaml.Error
		if errors.As(err, &e) && e.GetToken() != nil {
			pos := e.GetToken().Position
			d.report(pos.Line, pos.Column, e.GetMessage())
		} else {
			d.report(0, 0, err.Error())
		}
		return nil
	}
	for _, one := range f.Docs {
		if one.Body == nil {
			continue
		}
		if doc != nil {
			d.fail(one.Body, "is a second document; a file holds one")
			return nil
		}
		doc = one.Body
	}
	if doc != nil {
		ast.Walk(collector{d.anchors}, doc)
	}
	return doc
}

// collector notes what anchors stand for.
type collector struct{ anchors map[string]ast.Node }

func (c collector) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		if _, twice := c.anchors[a.Name.GetToken().Value]; !twice {
			c.anchors[a.Name.GetToken().Value] = a.Value
		}
	}
	return c
}

// report notes a problem at a place of the file.
func (d *decoder) report(line, column int, text string) {
	if len(d.problems) > 10*MaxProblems {
		return
	}
	p := &Problem{File: d.file, Line: line, Column: column, Path: strings.Join(d.path, "."), Text: text}
	if line >= 1 && line <= len(d.lines) {
		p.Source = strings.TrimRight(d.lines[line-1], "\r")
	}
	d.problems = append(d.problems, p)
}

// fail notes a problem with a value.
func (d *decoder) fail(n ast.Node, text string) {
	line, column := position(n)
	d.report(line, column, text)
}

func position(n ast.Node) (line, column int) {
	var tk *token.Token
	switch n := n.(type) {
	case nil:
		return 0, 0
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return position(n.Values[0].Key)
		}
		tk = n.Start
	case *ast.MappingValueNode:
		return position(n.Key)
	default:
		tk = n.GetToken()
	}
	if tk == nil || tk.Position == nil {
		return 0, 0
	}
	return tk.Position.Line, tk.Position.Column
}

// at runs f with a word added to the path.
func (d *decoder) at(word string, f func()) {
	if len(d.path) >= maxDepth {
		return
	}
	d.path = append(d.path, word)
	f()
	d.path = d.path[:len(d.path)-1]
}

// plain looks through anchors, aliases and tags. nil: a problem was noted.
func (d *decoder) plain(n ast.Node) ast.Node {
	for range maxDepth {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.TagNode:
			if v.Start.Value != "!!str" && v.Start.Value != "!!int" && v.Start.Value != "!!float" && v.Start.Value != "!!bool" {
				d.fail(n, fmt.Sprintf("has the tag %s; tags mean nothing here", v.Start.Value))
				return nil
			}
			n = v.Value
		case *ast.AliasNode:
			name := v.Value.GetToken().Value
			to, ok := d.anchors[name]
			if d.aliases++; d.aliases > maxAliases {
				d.fail(n, fmt.Sprintf("is an alias too many; the limit is %d", maxAliases))
				return nil
			}
			if !ok {
				d.fail(n, fmt.Sprintf("is an alias of %q, and there is no such anchor", name))
				return nil
			}
			n = to
		case nil:
			return nil
		default:
			return n
		}
	}
	d.fail(n, "is an alias of itself")
	return nil
}

// entry is one key of a mapping.
type entry struct {
	key  string
	node ast.Node // the key
	val  ast.Node
}

// entries returns what a mapping holds; what it merges comes first, so that its own
// keys win. ok is false, with a problem noted, if n is no mapping.
func (d *decoder) entries(n ast.Node, what string) (all []entry, ok bool) {
	return d.entriesBelow(n, what, 0)
}

func (d *decoder) entriesBelow(n ast.Node, what string, depth int) (all []entry, ok bool) {
	n = d.plain(n)
	m, ok := n.(ast.MapNode)
	if !ok || depth > maxDepth {
		if n != nil {
			d.fail(n, fmt.Sprintf("is %s; %s is wanted", kindOf(n), what))
		}
		return nil, false
	}
	at := map[string]int{}
	put := func(e entry) bool {
		if i, ok := at[e.key]; ok {
			all[i] = e
		} else {
			at[e.key] = len(all)
			all = append(all, e)
		}
		return d.more(n, 1)
	}
	for it := m.MapRange(); it.Next(); {
		if it.Key().IsMergeKey() {
			sources := []ast.Node{it.Value()}
			if seq, ok := d.plain(it.Value()).(*ast.SequenceNode); ok {
				sources = slices.Clone(seq.Values)
				slices.Reverse(sources) // the first one wins
			}
			for _, s := range sources {
				merged, ok := d.entriesBelow(s, "a mapping to merge", depth+1)
				if !ok {
					return nil, false
				}
				for _, e := range merged {
					if !put(e) {
						return nil, false
					}
				}
			}
		}
	}
	for it := m.MapRange(); it.Next(); {
		if it.Key().IsMergeKey() {
			continue
		}
		key, ok := d.text(it.Key())
		if !ok {
			d.fail(it.Key(), "has a key that is no word")
			return nil, false
		}
		if !put(entry{key, it.Key(), it.Value()}) {
			return nil, false
		}
	}
	return all, true
}

// sequence are the values of a list; none, with a problem noted, where they are too many.
func (d *decoder) sequence(n *ast.SequenceNode) []ast.Node {
	if !d.more(n, len(n.Values)) {
		return nil
	}
	return n.Values
}

// more counts values that are read, each time that an alias or a merge stands for them; false,
// with a problem noted: there are too many. A short text may stand for any number of them.
func (d *decoder) more(n ast.Node, values int) bool {
	if d.values <= maxNodes && d.values+values > maxNodes {
		d.fail(n, fmt.Sprintf("is where the file has too many values, with those that aliases and merges stand for; the limit is %d", maxNodes))
	}
	d.values += values
	return d.values <= maxNodes
}

// text returns a scalar as it is written; ok is false for anything else, and for null.
func (d *decoder) text(n ast.Node) (string, bool) {
	if key, ok := n.(*ast.MappingKeyNode); ok {
		n = key.Value
	}
	switch v := d.plain(n).(type) {
	case *ast.StringNode:
		return v.Value, d.more(n, len(v.Value)/textOfValue)
	case *ast.LiteralNode:
		if v.Value == nil {
			return "", true
		}
		return v.Value.Value, d.more(n, len(v.Value.Value)/textOfValue)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return v.GetToken().Value, true
	}
	return "", false
}

func kindOf(n ast.Node) string {
	switch v := n.(type) {
	case *ast.NullNode:
		return "empty"
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "a mapping"
	case *ast.LiteralNode:
		return "a block of text"
	case ast.ScalarNode:
		text := v.GetToken().Value
		if len(text) > 40 {
			text = text[:40] + "…"
		}
		return strconv.Quote(strings.ToValidUTF8(text, ""))
	}
	return "something else"
}

// choosePreset finds the preset before anything else: it decides the defaults.
func (d *decoder) choosePreset(doc ast.Node) {
	m, ok := d.plain(doc).(ast.MapNode)
	if !ok {
		return
	}
	for it := m.MapRange(); it.Next(); {
		if key, ok := d.text(it.Key()); ok && key == "preset" {
			d.preset, _ = d.text(it.Value())
		}
	}
}

// defaultOf returns the default of a field, under the preset.
func (d *decoder) defaultOf(f reflect.StructField) string {
	if d.preset != "" && d.preset != "default" && d.preset != "key" && d.preset != "doc" {
		if v, ok := f.Tag.Lookup(d.preset); ok {
			return v
		}
	}
	return f.Tag.Get("default")
}
