package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

type request struct {
	Model     string          `json:"model"`
	MaxTokens *int            `json:"max_tokens"`
	System    json.RawMessage `json:"system"`
	Messages  []message       `json:"messages"`
	Tools     []struct {
		Name        string          `json:"name"`
		Type        string          `json:"type"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	Stream bool `json:"stream"`
}

type apiErr struct {
	status int
	kind   string
	msg    string
}

func (e *apiErr) Error() string { return e.kind + ": " + e.msg }

func bad(format string, a ...any) *apiErr {
	return &apiErr{400, "invalid_request_error", fmt.Sprintf(format, a...)}
}

// check refuses what the real service refuses.
func (s *server) check(r *http.Request, body []byte, req *request) *apiErr {
	k := apiKey(r)
	if k == "" {
		return &apiErr{401, "authentication_error", "x-api-key header is required"}
	}
	if s.key != "" && k != s.key {
		return &apiErr{401, "authentication_error", "invalid x-api-key"}
	}
	if err := json.Unmarshal(body, req); err != nil {
		return bad("body is not valid JSON: %v", err)
	}
	if !s.strict {
		return nil
	}
	if r.Header.Get("anthropic-version") == "" {
		return bad("anthropic-version: header is required")
	}
	if req.Model == "" {
		return bad("model: field required")
	}
	if req.MaxTokens == nil || *req.MaxTokens < 1 {
		return bad("max_tokens: field required, at least 1")
	}
	if len(req.Messages) == 0 {
		return bad("messages: at least one message is required")
	}
	seen := map[string]bool{}
	for i, t := range req.Tools {
		if t.Name == "" {
			return bad("tools.%d.name: field required", i)
		}
		if seen[t.Name] {
			return bad("tools: names must be unique (%s)", t.Name)
		}
		seen[t.Name] = true
		if (t.Type == "" || t.Type == "custom") && !strings.HasPrefix(strings.TrimSpace(string(t.InputSchema)), "{") {
			return bad("tools.%d.input_schema: must be an object", i)
		}
	}
	var open map[string]bool // tool_use ids of the last assistant message
	for i, m := range req.Messages {
		bs, err := blocks(m.Content)
		if err != nil {
			return bad("messages.%d.content: %v", i, err)
		}
		if len(bs) == 0 {
			return bad("messages.%d: content must not be empty", i)
		}
		switch m.Role {
		case "user":
			for _, b := range bs {
				if b.Type != "tool_result" {
					continue
				}
				if !open[b.ToolUseID] {
					return bad("messages.%d: tool_result %q has no tool_use in the message before it", i, b.ToolUseID)
				}
				delete(open, b.ToolUseID)
			}
			for id := range open {
				return bad("messages.%d: tool_use %q is not followed by its tool_result", i, id)
			}
			open = nil
		case "assistant":
			if i == 0 {
				return bad("messages: the first message must have role user")
			}
			for id := range open {
				return bad("messages.%d: tool_use %q is not followed by its tool_result", i, id)
			}
			open = map[string]bool{}
			for _, b := range bs {
				if b.Type == "tool_use" {
					open[b.ID] = true
				}
			}
		default:
			return bad("messages.%d.role: %q is not user or assistant", i, m.Role)
		}
	}
	if req.Messages[len(req.Messages)-1].Role != "user" {
		return bad("messages: the last message must have role user")
	}
	return nil
}

// ---- small things ----

func apiKey(r *http.Request) string {
	if k := r.Header.Get("x-api-key"); k != "" {
		return k
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func jsonOr(b []byte) []byte {
	if json.Valid(b) {
		return b
	}
	q, _ := json.Marshal(string(b))
	return q
}

func blocks(raw json.RawMessage) ([]block, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if strings.TrimSpace(s) == "" {
			return nil, nil
		}
		return []block{{Type: "text", Text: s}}, nil
	}
	var bs []block
	return bs, json.Unmarshal(raw, &bs)
}

// flatten gives all text of a content value, tool results included.
func flatten(raw json.RawMessage) string {
	bs, err := blocks(raw)
	if err != nil {
		return ""
	}
	var sb strings.Builder
	for _, b := range bs {
		if b.Text != "" {
			sb.WriteString(b.Text + "\n")
		}
		if len(b.Content) > 0 {
			sb.WriteString(flatten(b.Content) + "\n")
		}
	}
	return sb.String()
}

func lastUser(ms []message) string {
	for i := len(ms) - 1; i >= 0; i-- {
		if ms[i].Role == "user" {
			return flatten(ms[i].Content)
		}
	}
	return ""
}
