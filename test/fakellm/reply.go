package main

import (
	"encoding/json"
	"fmt"
)

// reply is a finished message, ready to be sent whole or as events.
type reply struct {
	id, reqID, model, stop string
	blocks                 []Block
	usage                  Usage
}

func build(t Turn, vars map[string]string, model string, n, bodyLen int) *reply {
	r := &reply{id: fmt.Sprintf("msg_fake%06d", n), reqID: fmt.Sprintf("req_fake%06d", n), model: model, stop: t.StopReason}
	out := 0
	for i, b := range t.Reply {
		b.Text, b.Thinking, b.RawInput = expand(b.Text, vars), expand(b.Thinking, vars), expand(b.RawInput, vars)
		if b.Tool != "" {
			if r.stop == "" {
				r.stop = "tool_use"
			}
			if b.ID == "" {
				b.ID = fmt.Sprintf("toolu_fake%06d_%d", n, i)
			}
			if len(b.Input) == 0 {
				b.Input = json.RawMessage("{}")
			}
			b.Input = json.RawMessage(expandJSON(string(b.Input), vars))
		}
		out += (len(b.Text)+len(b.Thinking)+len(b.Input)+len(b.RawInput))/4 + 1
		r.blocks = append(r.blocks, b)
	}
	if r.stop == "" {
		r.stop = "end_turn"
	}
	r.usage = Usage{bodyLen / 4, out}
	if t.Usage != nil {
		r.usage = *t.Usage
	}
	return r
}

func (anthropicFace) whole(m *reply) map[string]any {
	content := []any{}
	for _, b := range m.blocks {
		switch {
		case b.Tool != "":
			var in any = b.Input
			if b.RawInput != "" {
				in = b.RawInput // a string where an object belongs
				if json.Valid([]byte(b.RawInput)) {
					in = json.RawMessage(b.RawInput)
				}
			}
			content = append(content, map[string]any{"type": "tool_use", "id": b.ID, "name": b.Tool, "input": in})
		case b.Thinking != "":
			content = append(content, map[string]any{"type": "thinking", "thinking": b.Thinking, "signature": "fake-signature"})
		default:
			content = append(content, map[string]any{"type": "text", "text": b.Text})
		}
	}
	return map[string]any{"id": m.id, "type": "message", "role": "assistant", "model": m.model, "content": content,
		"stop_reason": m.stop, "stop_sequence": nil, "usage": m.usage}
}
