package agent

import (
	"context"
	"encoding/json"
	"net/http"
)

// NewAnthropic returns a model behind Anthropic's Messages API
// (https://docs.anthropic.com/en/api/messages), or a gateway to it.
func NewAnthropic(c Config) (Model, error) {
	if c.BaseURL == "" {
		c.BaseURL = "https://api.anthropic.com"
	}
	m, err := newClient(c)
	if err != nil {
		return nil, err
	}
	places, err := newPlaces(m.BaseURL, "/messages")
	if err != nil {
		return nil, err
	}
	m.one = &claude{Config: m.Config, places: places}
	return m, nil
}

type claude struct {
	Config
	places *atPlaces
}

func (c *claude) once(ctx context.Context, hc *exchange, r Request, live func(Delta)) (Reply, error) {
	body := c.request(r)
	return c.places.ask(hc, func() (Reply, error) {
		header := http.Header{"Anthropic-Version": {"2023-06-01"}}
		if c.Key != "" {
			header.Set("X-Api-Key", c.Key)
		}
		res, err := hc.post(ctx, body, header)
		if err != nil {
			return Reply{}, err
		}
		defer res.Body.Close()
		s := claudeReply{live: live}
		whole, err := readEvents(res.Body, s.event)
		if err == nil && !whole {
			err = &ModelError{Kind: Broken, Message: "the stream ended before the message did"}
		}
		s.reply.Blocks = s.parts.blocks()
		return s.reply, err
	})
}

// claudeEvent is an event of a stream
// (https://docs.anthropic.com/en/docs/build-with-claude/streaming).
type claudeEvent struct {
	Type    string `json:"type"`
	Index   int64  `json:"index"`
	Message struct {
		Usage claudeUsage `json:"usage"`
	} `json:"message"`
	Block struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		ID        string `json:"id"`
		Name      string `json:"name"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
		Data      string `json:"data"`
	} `json:"content_block"`
	Delta struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
		Input     string `json:"partial_json"`
		Stop      string `json:"stop_reason"`
	} `json:"delta"`
	Usage claudeUsage `json:"usage"`
	Error struct {
		Type string `json:"type"`
	} `json:"error"`
}

type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

// atLeast raises a usage to the totals that an event has; old servers leave some out.
func (u *Usage) atLeast(v claudeUsage) {
	u.Input, u.Output = max(u.Input, tokens(v.Input)), max(u.Output, tokens(v.Output))
	u.CacheRead, u.CacheWrite = max(u.CacheRead, tokens(v.CacheRead)), max(u.CacheWrite, tokens(v.CacheWrite))
}

// claudeReply collects the parts of a reply.
type claudeReply struct {
	reply Reply
	parts assembly
	live  func(Delta)
}

// event takes an event, and reports whether it was the last one.
func (s *claudeReply) event(data []byte) (last bool, err error) {
	var ev claudeEvent
	if err := json.Unmarshal(data, &ev); err != nil {
		return false, notJSON(err)
	}
	switch ev.Type {
	case "message_start":
		s.reply.Usage.atLeast(ev.Message.Usage)
	case "content_block_start":
		err = s.begin(&ev)
	case "content_block_delta":
		switch d := &ev.Delta; d.Type {
		case "text_delta":
			s.live(Delta{Text: d.Text})
			err = s.parts.text(ev.Index, d.Text)
		case "thinking_delta":
			err = s.parts.text(ev.Index, d.Thinking)
		case "signature_delta":
			err = s.parts.opaque(ev.Index, d.Signature)
		case "input_json_delta":
			err = s.parts.input(ev.Index, d.Input)
		}
	case "message_delta":
		if ev.Delta.Stop != "" {
			s.reply.Stop = Stop(ev.Delta.Stop)
		}
		s.reply.Usage.atLeast(ev.Usage)
	case "message_stop":
		return true, nil
	case "error":
		err = claudeError(ev.Error.Type, data)
	}
	return false, err
}

func (s *claudeReply) begin(ev *claudeEvent) error {
	in := &ev.Block
	var b Block
	switch in.Type {
	case "text":
		b.Text = in.Text
		if b.Text != "" {
			s.live(Delta{Text: b.Text})
		}
	case "tool_use":
		b = Block{Kind: CallBlock, ID: in.ID, Name: in.Name}
		s.live(Delta{Tool: in.Name})
	case "thinking":
		b = Block{Kind: ThinkingBlock, Text: in.Thinking, Opaque: in.Signature}
	case "redacted_thinking":
		b = Block{Kind: HiddenBlock, Opaque: in.Data}
	default:
		return &ModelError{Kind: Broken, Message: "it holds a " + clip(in.Type, 50) + ", which nobody has asked for"}
	}
	return s.parts.begin(ev.Index, b)
}

// claudeError is an error in the middle of a stream: the status has been sent before.
func claudeError(kind string, data []byte) error {
	status := http.StatusInternalServerError
	switch kind {
	case "invalid_request_error", "not_found_error":
		status = http.StatusBadRequest
	case "authentication_error", "permission_error", "billing_error":
		status = http.StatusForbidden
	case "request_too_large":
		status = http.StatusRequestEntityTooLarge
	}
	e := refused(status, errorMessage(data))
	e.Status = 0
	return e
}

// fields are an object of JSON.
type fields = map[string]any

// request is the request in the words of the API. The prompt and all but the newest
// message are the same in the next request: they are marked for the cache.
func (c *claude) request(r Request) fields {
	cached := fields{"type": "ephemeral"}
	out := fields{"model": c.Model, "max_tokens": r.bound(c.MaxTokens), "stream": true}
	if r.System != "" {
		out["system"] = []fields{{"type": "text", "text": r.System, "cache_control": cached}}
	}
	var tools, messages []fields
	for _, t := range r.Tools {
		tools = append(tools, fields{"name": t.Name, "description": t.Description, "input_schema": t.Schema})
	}
	if len(tools) > 0 {
		out["tools"] = tools
	}
	for n, m := range r.Messages {
		role := "user"
		if m.Role == Assistant {
			role = "assistant"
		}
		var content []fields
		for _, b := range m.Blocks {
			content = append(content, claudeBlock(b))
		}
		if n == len(r.Messages)-1 {
			if kind := m.Blocks[len(m.Blocks)-1].Kind; kind == TextBlock || kind == ResultBlock {
				content[len(content)-1]["cache_control"] = cached
			}
		}
		messages = append(messages, fields{"role": role, "content": content})
	}
	out["messages"] = messages
	return out
}

func claudeBlock(b Block) fields {
	switch b.Kind {
	case CallBlock:
		return fields{"type": "tool_use", "id": b.ID, "name": b.Name, "input": b.Input}
	case ResultBlock:
		return fields{"type": "tool_result", "tool_use_id": b.ID, "is_error": b.Error, "content": []fields{{"type": "text", "text": b.Text}}}
	case HiddenBlock:
		return fields{"type": "redacted_thinking", "data": b.Opaque}
	case ThinkingBlock:
		return fields{"type": "thinking", "thinking": b.Text, "signature": b.Opaque}
	}
	return fields{"type": "text", "text": b.Text}
}
