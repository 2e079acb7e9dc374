package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tool is something that a model may call.
type Tool struct {
	Name, Description string
	Schema            map[string]any // of the input, an object; what can be said is in [schema]
	// Run receives an input that fits the schema. Its result is data, and its error is our
	// own text; both may be set. The model sees the error, so it must contain no secret.
	Run     func(ctx context.Context, input json.RawMessage) (string, error)
	Last    bool // a call that succeeds ends the attempt, and its result is the summary
	Noisy   bool // numbers in its results differ each time, and mean nothing
	Changes bool // a call that succeeds has changed something
}

// toolset is the tools of an attempt, with their schemas.
type toolset struct {
	tools   map[string]Tool
	schemas map[string]*schema
	size    int // bytes that they add to a request
}

type result struct {
	text string
	err  error
	run  bool // the call was run, or found wrong; not: left out
}

func newToolset(tools []Tool) (*toolset, error) {
	s := &toolset{tools: map[string]Tool{}, schemas: map[string]*schema{}}
	for _, t := range tools {
		if !goodName.MatchString(t.Name) || t.Run == nil {
			return nil, fmt.Errorf("tool %q: it needs a name of letters, digits, - and _, at most 64, and something to run", t.Name)
		}
		if _, twice := s.tools[t.Name]; twice {
			return nil, fmt.Errorf("tool %s is there twice", t.Name)
		}
		raw, err := json.Marshal(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("tool %s: schema: %w", t.Name, err)
		}
		schema, err := readSchema(raw)
		if err != nil {
			return nil, fmt.Errorf("tool %s: schema: %w", t.Name, err)
		}
		s.tools[t.Name], s.schemas[t.Name] = t, schema
		s.size += len(raw) + len(t.Description) + len(t.Name)
	}
	return s, nil
}

// run has a call carried out by act, or says what is wrong with it.
func (s *toolset) run(ctx context.Context, call Block, act func(context.Context, Tool, Block) (string, error)) result {
	t, ok := s.tools[call.Name]
	if !ok {
		return result{err: fmt.Errorf("there is no tool %q. There are: %s", name(call.Name), s.names()), run: true}
	}
	input := call.Input
	if len(bytes.TrimSpace(input)) == 0 {
		input = json.RawMessage(`{}`) // how a call without arguments is streamed
	}
	if err := s.schemas[t.Name].check(input); err != nil {
		return result{err: fmt.Errorf("the input was not understood, and nothing was done: %w. Send one JSON object that fits the schema of %s",
			err, t.Name), run: true}
	}
	call.Input = input
	text, err := act(ctx, t, call)
	return result{text, err, true}
}

func (s *toolset) names() string {
	return strings.Join(slices.Sorted(maps.Keys(s.tools)), ", ")
}
