package agent

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
)

// NewOpenAI returns a model behind an API compatible with OpenAI's chat/completions
// (https://platform.openai.com/docs/api-reference/chat), with tools and streaming, which
// many servers offer.
func NewOpenAI(c Config) (Model, error) {
	if c.BaseURL == "" {
		c.BaseURL = "https://api.openai.com/v1"
	}
	m, err := newClient(c)
	if err != nil {
		return nil, err
	}
	places, err := newPlaces(m.BaseURL, "/chat/completions")
	if err != nil {
		return nil, err
	}
	m.one = &chat{Config: m.Config, places: places}
	return m, nil
}

type chat struct {
	Config
	places *atPlaces
	// renamed: the server wants max_completion_tokens. Newer models refuse
	// max_tokens, and older servers know nothing else.
	renamed atomic.Bool
}

func (c *chat) once(ctx context.Context, hc *exchange, r Request, live func(Delta)) (Reply, error) {
	send := func() (Reply, error) { return c.stream(ctx, hc, r, live) }
	reply, err := c.places.ask(hc, send)
	var e *ModelError
	if errors.As(err, &e) && e.Kind == Invalid && strings.Contains(e.Message, "max_completion_tokens") &&
		c.renamed.CompareAndSwap(false, true) {
		return c.places.ask(hc, send)
	}
	return reply, err
}

func (c *chat) stream(ctx context.Context, hc *exchange, r Request, live func(Delta)) (Reply, error) {
	header := http.Header{}
	if c.Key != "" {
		header.Set("Authorization", "Bearer "+c.Key)
	}
	res, err := hc.post(ctx, c.request(r), header)
	if err != nil {
		return Reply{}, err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/json" {
		return readChat(res.Body, live) // it does not stream
	}
	return readChatStream(res.Body, live)
}

type (
	chatRequest struct {
		Model               string        `json:"model"`
		Messages            []chatMessage `json:"messages"`
		Tools               []chatTool    `json:"tools,omitempty"`
		MaxTokens           int           `json:"max_tokens,omitempty"`
		MaxCompletionTokens int           `json:"max_completion_tokens,omitempty"`
		Stream              bool          `json:"stream"`
		StreamOptions       struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	chatMessage struct {
		Role    string     `json:"role"`
		Content *string    `json:"content"`
		Calls   []chatCall `json:"tool_calls,omitempty"`
		CallID  string     `json:"tool_call_id,omitempty"`
	}
	chatCall struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	chatTool struct {
		Type     string `json:"type"`
		Function struct {
			Name        string         `json:"name"`
			Description string         `json:"description"`
			Parameters  map[string]any `json:"parameters"`
		} `json:"function"`
	}
)

func (c *chat) request(r Request) chatRequest {
	out := chatRequest{Model: c.Model, Stream: true}
	out.StreamOptions.IncludeUsage = true
	if c.renamed.Load() {
		out.MaxCompletionTokens = r.bound(c.MaxTokens)
	} else {
		out.MaxTokens = r.bound(c.MaxTokens)
	}
	for _, t := range r.Tools {
		tool := chatTool{Type: "function"}
		tool.Function.Name, tool.Function.Description, tool.Function.Parameters = t.Name, t.Description, t.Schema
		out.Tools = append(out.Tools, tool)
	}
	if r.System != "" {
		out.Messages = append(out.Messages, chatMessage{Role: "system", Content: &r.System})
	}
	for _, m := range r.Messages {
		out.Messages = append(out.Messages, chatMessages(m)...)
	}
	return out
}

// chatMessages is one message in the words of the API, where each result is a
// message. Thinking has no place in it.
func chatMessages(m Message) (out []chatMessage) {
	var text []string
	var calls []chatCall
	for _, b := range m.Blocks {
		switch b.Kind {
		case TextBlock:
			text = append(text, b.Text)
		case CallBlock:
			call := chatCall{ID: b.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = b.Name, string(b.Input)
			calls = append(calls, call)
		case ResultBlock:
			if b.Error { // there is no field for it
				b.Text = "Error: " + b.Text
			}
			out = append(out, chatMessage{Role: "tool", CallID: b.ID, Content: &b.Text})
		}
	}
	role := "user"
	if m.Role == Assistant {
		role = "assistant"
	}
	all := strings.Join(text, "\n\n")
	switch {
	case all != "":
		out = append(out, chatMessage{Role: role, Content: &all, Calls: calls})
	case len(calls) > 0:
		out = append(out, chatMessage{Role: role, Calls: calls})
	}
	return out
}
