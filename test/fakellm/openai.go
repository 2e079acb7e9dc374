package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// openAIFace is chat/completions, as OpenAI and many other servers have it. The
// script, its faults and its checks are those of the other face.
type openAIFace struct{}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type chatRequest struct {
	Model               string        `json:"model"`
	Messages            []chatMessage `json:"messages"`
	MaxTokens           *int          `json:"max_tokens"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`
	Tools               []struct {
		Type     string `json:"type"`
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	Stream        bool `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (openAIFace) garbage() string { return `{"id":"chatcmpl-fake","choices":[{"mess` }

func (openAIFace) broken() string {
	return chunkText(map[string]any{"error": map[string]any{"message": "Overloaded", "type": "server_error", "code": nil}})
}

func (openAIFace) refuse(w http.ResponseWriter, e *apiErr, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("retry-after", retryAfter)
	}
	status, kind, code := e.status, e.kind, any(nil)
	switch {
	case status == 529: // that of the other service
		status, kind = 503, "server_error"
	case status == 429:
		kind, code = "requests", "rate_limit_exceeded"
	case status == 401:
		kind, code = "invalid_request_error", "invalid_api_key"
	case status >= 500:
		kind = "server_error"
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": e.msg, "type": kind, "param": nil, "code": code}})
}

func (openAIFace) check(s *server, r *http.Request, body []byte) (*asked, *apiErr) {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || bearer == "" {
		return nil, &apiErr{401, "authentication_error", "You didn't provide an API key. Put it in an Authorization header, using Bearer auth"}
	}
	if s.key != "" && bearer != s.key {
		return nil, &apiErr{401, "authentication_error", "Incorrect API key provided"}
	}
	var req chatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, bad("we could not parse the JSON body of your request: %v", err)
	}
	if s.strict {
		if e := req.check(); e != nil {
			return nil, e
		}
	}
	q := &asked{model: req.Model, stream: req.Stream, usage: req.StreamOptions != nil && req.StreamOptions.IncludeUsage}
	for _, t := range req.Tools {
		q.tools = append(q.tools, t.Function.Name)
	}
	// The last user message of the other face holds the results of tools as well:
	// here they are the messages since the last one of the assistant.
	for _, m := range req.Messages {
		switch m.Role {
		case "system", "developer":
			q.system += flatten(m.Content)
		case "assistant":
			q.last = ""
		default:
			q.last += flatten(m.Content)
		}
	}
	return q, nil
}

// check refuses what the real service refuses.
func (req *chatRequest) check() *apiErr {
	switch {
	case req.Model == "":
		return bad("you must provide a model parameter")
	case len(req.Messages) == 0:
		return bad("messages: at least one message is required")
	case req.MaxTokens != nil && req.MaxCompletionTokens != nil:
		return bad("setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported")
	case req.StreamOptions != nil && !req.Stream:
		return bad("stream_options: only allowed when stream is enabled")
	}
	for _, n := range []*int{req.MaxTokens, req.MaxCompletionTokens} {
		if n != nil && *n < 1 {
			return bad("max_tokens: integer below minimum value")
		}
	}
	seen := map[string]bool{}
	for i, t := range req.Tools {
		switch n := t.Function.Name; {
		case t.Type != "function":
			return bad("tools[%d].type: must be function", i)
		case !toolName.MatchString(n) || len(n) > 64:
			return bad("tools[%d].function.name: string does not match pattern ^[a-zA-Z0-9_-]{1,64}$", i)
		case seen[n]:
			return bad("tools: names must be unique (%s)", n)
		case !goodSchema(t.Function.Parameters):
			return bad("tools[%d].function.parameters: schema must have type 'object' and not have 'oneOf', 'anyOf' or 'allOf' at the top level", i)
		}
		seen[t.Function.Name] = true
	}
	ids, open := map[string]bool{}, map[string]bool{}
	for i, m := range req.Messages {
		if m.Role != "tool" {
			for id := range open {
				return bad("an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id' (%s before messages[%d])", id, i)
			}
		}
		empty := strings.TrimSpace(flatten(m.Content)) == ""
		switch m.Role {
		case "system", "developer", "user":
			if empty {
				return bad("messages[%d]: content must not be empty", i)
			}
		case "tool":
			if !open[m.ToolCallID] {
				return bad("messages with role 'tool' must be a response to a preceding message with 'tool_calls' (%s)", m.ToolCallID)
			}
			if empty {
				return bad("messages[%d]: content must not be empty", i)
			}
			delete(open, m.ToolCallID)
		case "assistant":
			if empty && len(m.ToolCalls) == 0 {
				return bad("messages[%d]: an assistant message needs content or tool_calls", i)
			}
			for _, c := range m.ToolCalls {
				var args string
				switch {
				case c.ID == "" || ids[c.ID]:
					return bad("messages[%d].tool_calls: ids must be unique (%q)", i, c.ID)
				case c.Type != "function":
					return bad("messages[%d].tool_calls: type must be function", i)
				case !toolName.MatchString(c.Function.Name) || len(c.Function.Name) > 64:
					return bad("messages[%d].tool_calls: function.name does not match pattern ^[a-zA-Z0-9_-]{1,64}$", i)
				case json.Unmarshal(c.Function.Arguments, &args) != nil || !json.Valid([]byte(args)):
					return bad("messages[%d].tool_calls: function.arguments must be a string of JSON", i)
				}
				ids[c.ID], open[c.ID] = true, true
			}
		default:
			return bad("messages[%d].role: %q is not one of system, developer, user, assistant, tool", i, m.Role)
		}
	}
	if len(open) > 0 || req.Messages[len(req.Messages)-1].Role == "assistant" {
		return bad("messages: the last one must be of role user or tool, and answer each tool call")
	}
	return nil
}

func chatStop(stop string) string {
	switch stop {
	case "end_turn":
		return "stop"
	case "tool_use":
		return "tool_calls"
	case "max_tokens":
		return "length"
	case "refusal":
		return "content_filter"
	}
	return stop
}

func (u Usage) chat() map[string]int {
	return map[string]int{"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output}
}

// arguments are the input of a call, malformed if the script says so.
func (b Block) arguments() string {
	if b.RawInput != "" {
		return b.RawInput
	}
	return string(b.Input)
}

func (openAIFace) whole(m *reply) map[string]any {
	msg := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	text, calls := "", []any{}
	for _, b := range m.blocks {
		switch {
		case b.Tool != "":
			calls = append(calls, map[string]any{"id": b.ID, "type": "function", "function": map[string]any{"name": b.Tool, "arguments": b.arguments()}})
		case b.Thinking != "":
			msg["reasoning_content"] = b.Thinking
		default:
			text += b.Text
		}
	}
	if text != "" {
		msg["content"] = text
	}
	if len(calls) > 0 {
		msg["tool_calls"] = calls
	}
	return map[string]any{"id": m.id, "object": "chat.completion", "created": 1, "model": m.model, "usage": m.usage.chat(),
		"choices": []any{map[string]any{"index": 0, "message": msg, "finish_reason": chatStop(m.stop), "logprobs": nil}}}
}

func chunkText(v any) string {
	b, _ := json.Marshal(v)
	return fmt.Sprintf("data: %s\n\n", b)
}

func (openAIFace) events(m *reply, q *asked) (out []string) {
	chunk := func(delta map[string]any, finish any) {
		out = append(out, chunkText(map[string]any{"id": m.id, "object": "chat.completion.chunk", "created": 1, "model": m.model,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}}))
	}
	chunk(map[string]any{"role": "assistant", "content": ""}, nil)
	calls := 0
	for _, b := range m.blocks {
		switch {
		case b.Tool != "":
			call := func(v map[string]any) {
				v["index"] = calls
				chunk(map[string]any{"tool_calls": []any{v}}, nil)
			}
			call(map[string]any{"id": b.ID, "type": "function", "function": map[string]any{"name": b.Tool, "arguments": ""}})
			for _, c := range chunks(b.arguments(), 24) {
				call(map[string]any{"function": map[string]any{"arguments": c}})
			}
			calls++
		case b.Thinking != "":
			for _, c := range chunks(b.Thinking, 40) {
				chunk(map[string]any{"reasoning_content": c}, nil)
			}
		default:
			for _, c := range chunks(b.Text, 24) {
				chunk(map[string]any{"content": c}, nil)
			}
		}
	}
	chunk(map[string]any{}, chatStop(m.stop))
	if q.usage {
		out = append(out, chunkText(map[string]any{"id": m.id, "object": "chat.completion.chunk", "created": 1, "model": m.model, "choices": []any{}, "usage": m.usage.chat()}))
	}
	return append(out, "data: [DONE]\n\n")
}
