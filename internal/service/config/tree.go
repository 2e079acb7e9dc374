package config

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// Node is a value of a YAML or JSON file that is no tend.yaml.
type Node struct {
	Line, Column int
	// Text of a scalar, as it is written; Null: it is empty or null.
	Text string
	Null bool
	// List of a sequence; Keys and Map of a mapping, in its order.
	List []*Node
	Keys []string
	Map  map[string]*Node
	// IsList and IsMap tell an empty one from a scalar.
	IsList, IsMap bool
}

// maxNodes bounds the values of a file, with those that aliases stand for.
const maxNodes = 100_000

// ReadTree reads a file of another program: YAML, of which JSON is a part. Its error is
// Problems.
func ReadTree(name string, data []byte) (*Node, error) {
	d := newDecoder(name)
	if !d.readable(data) {
		return nil, d.problems
	}
	doc := d.read(data)
	if len(d.problems) > 0 && json.Valid(data) { // JSON may have tabs where YAML has none
		flat := new(bytes.Buffer)
		if json.Compact(flat, data) == nil {
			d = newDecoder(name)
			d.readable(flat.Bytes())
			doc = d.read(flat.Bytes())
		}
	}
	if doc == nil && len(d.problems) == 0 {
		d.report(0, 0, "is empty")
	}
	if len(d.problems) > 0 {
		return nil, d.sorted()
	}
	left := maxNodes
	n := d.tree(doc, &left)
	if len(d.problems) > 0 {
		return nil, d.sorted()
	}
	return n, nil
}

func (d *decoder) tree(from ast.Node, left *int) *Node {
	line, column := position(from)
	n := &Node{Line: line, Column: column}
	if *left--; *left < 0 || len(d.path) >= maxDepth-1 {
		if len(d.problems) == 0 {
			d.fail(from, fmt.Sprintf("has more values, or deeper ones, than are read: %d, and a depth of %d", maxNodes, maxDepth))
		}
		return n
	}
	switch v := d.plain(from).(type) {
	case nil:
		n.Null = true
	case *ast.SequenceNode:
		n.IsList = true
		for _, one := range v.Values {
			d.at("-", func() { n.List = append(n.List, d.tree(one, left)) })
		}
	case ast.MapNode:
		n.IsMap, n.Map = true, map[string]*Node{}
		all, _ := d.entries(from, "a mapping")
		for _, e := range all {
			d.at(e.key, func() {
				n.Keys = append(n.Keys, e.key)
				n.Map[e.key] = d.tree(e.val, left)
			})
		}
	default:
		var ok bool
		if n.Text, ok = d.text(v); !ok {
			n.Null = true
		}
	}
	return n
}
