package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

type event struct {
	name string
	data map[string]any
}

// text is the event as it is sent.
func (e event) text() string {
	e.data["type"] = e.name
	b, _ := json.Marshal(e.data)
	return fmt.Sprintf("event: %s\ndata: %s\n\n", e.name, b)
}

func (anthropicFace) broken() string {
	return event{"error", map[string]any{"error": map[string]string{"type": "overloaded_error", "message": "Overloaded"}}}.text()
}

func (f anthropicFace) events(m *reply, _ *asked) (out []string) {
	for _, e := range f.parts(m) {
		out = append(out, e.text())
	}
	return out
}

func (f anthropicFace) parts(m *reply) []event {
	head := f.whole(m)
	head["content"], head["stop_reason"] = []any{}, nil
	head["usage"] = Usage{m.usage.Input, 1}
	ev := []event{{"message_start", map[string]any{"message": head}}}
	for i, b := range m.blocks {
		var start map[string]any
		var deltas []map[string]any
		switch {
		case b.Tool != "":
			start = map[string]any{"type": "tool_use", "id": b.ID, "name": b.Tool, "input": map[string]any{}}
			raw := b.RawInput
			if raw == "" {
				raw = string(b.Input)
			}
			deltas = append(deltas, map[string]any{"type": "input_json_delta", "partial_json": ""})
			for _, c := range chunks(raw, 24) {
				deltas = append(deltas, map[string]any{"type": "input_json_delta", "partial_json": c})
			}
		case b.Thinking != "":
			start = map[string]any{"type": "thinking", "thinking": "", "signature": ""}
			for _, c := range chunks(b.Thinking, 40) {
				deltas = append(deltas, map[string]any{"type": "thinking_delta", "thinking": c})
			}
			deltas = append(deltas, map[string]any{"type": "signature_delta", "signature": "fake-signature"})
		default:
			start = map[string]any{"type": "text", "text": ""}
			for _, c := range chunks(b.Text, 24) {
				deltas = append(deltas, map[string]any{"type": "text_delta", "text": c})
			}
		}
		ev = append(ev, event{"content_block_start", map[string]any{"index": i, "content_block": start}})
		if i == 0 {
			ev = append(ev, event{"ping", map[string]any{}})
		}
		for _, d := range deltas {
			ev = append(ev, event{"content_block_delta", map[string]any{"index": i, "delta": d}})
		}
		ev = append(ev, event{"content_block_stop", map[string]any{"index": i}})
	}
	return append(ev,
		event{"message_delta", map[string]any{"delta": map[string]any{"stop_reason": m.stop, "stop_sequence": nil}, "usage": map[string]int{"output_tokens": m.usage.Output}}},
		event{"message_stop", map[string]any{}})
}

// stream sends the events of a reply, and what fault there is between them.
func stream(w http.ResponseWriter, r *http.Request, events []string, broken string, f *Fault, done func()) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	fl, _ := w.(http.Flusher)
	send := func(text string) {
		fmt.Fprint(w, text)
		if fl != nil {
			fl.Flush()
		}
	}
	for i, e := range events {
		if f != nil {
			switch {
			case f.Kind == "cut" && i >= max(1, f.After):
				done()
				panic(http.ErrAbortHandler)
			case f.Kind == "truncate" && i >= max(1, f.After):
				done() // a clean end of the body, with no message_stop
				return
			case f.Kind == "stream_error" && i >= max(1, f.After):
				done()
				send(broken)
				return
			case f.Kind == "slow":
				pause(r, f.DelayMS)
				if f.Until != "" && i >= max(1, f.After) {
					await(r, f.Until)
				}
				if r.Context().Err() != nil {
					return
				}
			}
		}
		if i == len(events)-1 {
			done()
		}
		send(e)
	}
}

// await waits until a file is there, or the client has left.
func await(r *http.Request, file string) {
	for r.Context().Err() == nil {
		if _, err := os.Stat(file); err == nil {
			return
		}
		pause(r, 50)
	}
}

func pause(r *http.Request, ms int) {
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
	case <-r.Context().Done():
	}
}

func chunks(s string, n int) []string {
	var out []string
	r := []rune(s)
	for len(r) > n {
		out, r = append(out, string(r[:n])), r[n:]
	}
	return append(out, string(r))
}
