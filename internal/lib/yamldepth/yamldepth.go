// Package yamldepth bounds how deep a text of YAML is nested, before it is parsed.
//
// The parser keeps for each node the way to it, and looks at a chain of anchors and tags again
// for each of them: a few kilobytes of brackets take gigabytes, and of anchors hours. Neither
// is in a file that a person or a program writes.
package yamldepth

import (
	"fmt"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

const (
	// Max is how deep collections may be nested.
	Max = 100
	// maxProperties is how many anchors and tags one value may have.
	maxProperties = 4
)

// Error says where a text is nested too deep. Line and Column begin with 1.
type Error struct {
	Line, Column int
	Reason       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d %s", e.Line, e.Column, e.Reason)
}

// Check returns an *[Error] for a text that is nested deeper than Max, or has a chain of anchors
// and tags. It takes time and memory in proportion to the text, and may panic for one that is
// no YAML, as the parser may.
func Check(text []byte) error {
	var blocks []int // columns of the block collections that are open
	flow, properties := 0, 0
	for _, t := range lexer.Tokenize(string(text)) {
		fail := func(reason string) error {
			return &Error{Line: t.Position.Line, Column: t.Position.Column, Reason: reason}
		}
		switch t.Type {
		case token.AnchorType, token.TagType:
			if properties++; properties > maxProperties {
				return fail(fmt.Sprintf("has more than %d anchors and tags for one value", maxProperties))
			}
			continue
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(0, flow-1)
		case token.DocumentHeaderType, token.DocumentEndType:
			blocks, flow = blocks[:0], 0
		}
		// The name of an anchor comes after it, as a scalar.
		if t.Prev == nil || t.Prev.Type != token.AnchorType {
			properties = 0
		}
		if at := column(t); flow == 0 && at > 0 {
			for len(blocks) > 0 && blocks[len(blocks)-1] >= at {
				blocks = blocks[:len(blocks)-1]
			}
			blocks = append(blocks, at)
		}
		if len(blocks)+flow > Max {
			return fail(fmt.Sprintf("is nested deeper than %d", Max))
		}
	}
	return nil
}

// column is where the block collection begins that a token is of: an entry of a list, or a key,
// which its colon tells of; 0: it is of none.
func column(t *token.Token) int {
	switch {
	case t.Type == token.SequenceEntryType, t.Type == token.MappingKeyType:
		return t.Position.Column
	case t.Type == token.MappingValueType && t.Prev != nil && t.Prev.Position.Line == t.Position.Line:
		return t.Prev.Position.Column
	case t.Type == token.MappingValueType:
		return t.Position.Column
	}
	return 0
}
