package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
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
	Input     json.RawMessage `json:"input"`
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

// anthropicFace is the Messages API.
type anthropicFace struct{}

func (anthropicFace) garbage() string { return `{"type":"message","content":[{"type":"te` }

func (anthropicFace) refuse(w http.ResponseWriter, e *apiErr, retryAfter string) {
	writeErr(w, e, retryAfter)
}

func (anthropicFace) check(s *server, r *http.Request, body []byte) (*asked, *apiErr) {
	var req request
	if e := s.check(r, body, &req); e != nil {
		return nil, e
	}
	q := &asked{model: req.Model, system: flatten(req.System), last: lastUser(req.Messages), stream: req.Stream}
	for _, t := range req.Tools {
		q.tools = append(q.tools, t.Name)
	}
	return q, nil
}

var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	toolID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// goodSchema says whether a tool's schema is an object that says nothing like "one of" at its
// top: both services refuse that.
func goodSchema(raw json.RawMessage) bool {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return false
	}
	for _, k := range []string{"oneOf", "anyOf", "allOf"} {
		if _, has := m[k]; has {
			return false
		}
	}
	return string(m["type"]) == `"object"`
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
		if !toolName.MatchString(t.Name) {
			return bad("tools.%d.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", i)
		}
		if (t.Type == "" || t.Type == "custom") && !goodSchema(t.InputSchema) {
			return bad("tools.%d.input_schema: must be an object of type object, with no oneOf, allOf or anyOf at the top level", i)
		}
	}
	ids := map[string]bool{} // of all tool_use blocks
	var open map[string]bool // tool_use ids of the last assistant message
	for i, m := range req.Messages {
		bs, err := blocks(m.Content)
		if err != nil {
			return bad("messages.%d.content: %v", i, err)
		}
		if len(bs) == 0 {
			return bad("messages.%d: content must not be empty", i)
		}
		for j, b := range bs {
			if b.Type == "text" && strings.TrimSpace(b.Text) == "" {
				return bad("messages.%d.content.%d: text content blocks must be non-empty", i, j)
			}
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
				if b.Type != "tool_use" {
					continue
				}
				var input map[string]json.RawMessage
				switch {
				case !toolID.MatchString(b.ID):
					return bad("messages.%d: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", i)
				case ids[b.ID]:
					return bad("messages.%d: tool_use ids must be unique (%s)", i, b.ID)
				case !toolName.MatchString(b.Name):
					return bad("messages.%d: tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", i)
				case json.Unmarshal(b.Input, &input) != nil || input == nil:
					return bad("messages.%d: tool_use.input: Input should be a valid dictionary", i)
				}
				ids[b.ID], open[b.ID] = true, true
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
