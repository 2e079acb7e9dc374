package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
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
	return c.places.ask(hc, func() (Reply, error) { return c.stream(ctx, hc, r, live) })
}

func (c *claude) stream(ctx context.Context, hc *exchange, r Request, live func(Delta)) (Reply, error) {
	header := http.Header{"Accept": {"application/json"}, "Anthropic-Version": {"2023-06-01"}}
	if c.Key != "" {
		header.Set("X-Api-Key", c.Key)
	}
	res, err := hc.post(ctx, header, c.request(r))
	if err != nil {
		return Reply{}, err
	}
	defer res.Body.Close()
	return readClaude(res.Body, live)
}

type (
	claudeRequest struct {
		Model     string          `json:"model"`
		MaxTokens int             `json:"max_tokens"`
		System    []claudeText    `json:"system,omitempty"`
		Tools     []claudeTool    `json:"tools,omitempty"`
		Messages  []claudeMessage `json:"messages"`
		Stream    bool            `json:"stream"`
	}
	claudeMessage struct {
		Role    string `json:"role"`
		Content []any  `json:"content"` // of the types below
	}
	claudeTool struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Schema      map[string]any `json:"input_schema"`
	}
	claudeText struct {
		Type  string       `json:"type"`
		Text  string       `json:"text"`
		Cache *claudeCache `json:"cache_control,omitempty"`
	}
	claudeCall struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	claudeResult struct {
		Type    string       `json:"type"`
		ID      string       `json:"tool_use_id"`
		Content []claudeText `json:"content"`
		Error   bool         `json:"is_error"`
		Cache   *claudeCache `json:"cache_control,omitempty"`
	}
	claudeThinking struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	claudeHidden struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}
	claudeCache struct {
		Type string `json:"type"`
	}
)

// request is the request in the words of the API. The prompt and all but the newest
// message are the same in the next request: they are marked for the cache.
func (c *claude) request(r Request) claudeRequest {
	marked := &claudeCache{Type: "ephemeral"}
	out := claudeRequest{Model: c.Model, MaxTokens: r.bound(c.MaxTokens), Stream: true}
	if r.System != "" {
		out.System = []claudeText{{Type: "text", Text: r.System, Cache: marked}}
	}
	for _, t := range r.Tools {
		schema := map[string]any{}
		maps.Copy(schema, t.Schema)
		schema["type"] = "object"
		out.Tools = append(out.Tools, claudeTool{Name: t.Name, Description: t.Description, Schema: schema})
	}
	for i, m := range r.Messages {
		to := claudeMessage{Role: "user"}
		if m.Role == Assistant {
			to.Role = "assistant"
		}
		for j, b := range m.Blocks {
			var cache *claudeCache
			if i == len(r.Messages)-1 && j == len(m.Blocks)-1 {
				cache = marked
			}
			to.Content = append(to.Content, claudeBlock(b, cache))
		}
		out.Messages = append(out.Messages, to)
	}
	return out
}

// claudeBlock is a block in the words of the API. Texts and results alone, which end what a
// user says, are marked for the cache.
func claudeBlock(b Block, cache *claudeCache) any {
	switch b.Kind {
	case CallBlock:
		return claudeCall{Type: "tool_use", ID: b.ID, Name: b.Name, Input: b.Input}
	case ResultBlock:
		return claudeResult{Type: "tool_result", ID: b.ID, Content: []claudeText{{Type: "text", Text: b.Text}}, Error: b.Error, Cache: cache}
	case HiddenBlock:
		return claudeHidden{Type: "redacted_thinking", Data: b.Opaque}
	case ThinkingBlock:
		return claudeThinking{Type: "thinking", Thinking: b.Text, Signature: b.Opaque}
	}
	return claudeText{Type: "text", Text: b.Text, Cache: cache}
}

// claudeEvent is one event of a stream; which fields it has depends on the type.
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
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage claudeUsage     `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

// raise takes totals, of which old servers leave some out.
func (u *Usage) raise(v claudeUsage) {
	u.Input, u.Output = max(u.Input, v.Input), max(u.Output, v.Output)
	u.CacheRead, u.CacheWrite = max(u.CacheRead, v.CacheRead), max(u.CacheWrite, v.CacheWrite)
}

// claudeReply collects the parts of a reply.
type claudeReply struct {
	reply Reply
	parts assembly
	whole bool
	live  func(Delta)
}

// readClaude reads events until the message stops.
func readClaude(body io.Reader, live func(Delta)) (Reply, error) {
	c := claudeReply{live: live}
	if err := readEvents(body, c.event); err != nil {
		return c.reply, err
	}
	if !c.whole {
		return c.reply, &ModelError{Kind: Broken, Message: "the stream ended before the message did"}
	}
	c.reply.Blocks = c.parts.blocks()
	return c.reply, nil
}

func (c *claudeReply) event(data []byte) (done bool, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return false, nil
	}
	var ev claudeEvent
	if err := json.Unmarshal(data, &ev); err != nil {
		return false, &ModelError{Kind: Broken, Message: "it is not JSON", Err: err}
	}
	switch ev.Type {
	case "message_start":
		c.reply.Usage.raise(ev.Message.Usage)
	case "content_block_start":
		err = c.begin(ev)
	case "content_block_delta":
		switch d := ev.Delta; d.Type {
		case "text_delta":
			c.live(Delta{Text: d.Text})
			err = c.parts.text(ev.Index, d.Text)
		case "thinking_delta":
			err = c.parts.text(ev.Index, d.Thinking)
		case "signature_delta":
			err = c.parts.opaque(ev.Index, d.Signature)
		case "input_json_delta":
			err = c.parts.input(ev.Index, d.PartialJSON)
		}
	case "message_delta":
		if ev.Delta.StopReason != "" {
			c.reply.Stop = Stop(ev.Delta.StopReason)
		}
		c.reply.Usage.raise(ev.Usage)
	case "message_stop":
		c.whole = true
	case "error":
		err = claudeError(ev.Error, errorText(data))
	}
	return c.whole, err
}

func (c *claudeReply) begin(ev claudeEvent) error {
	in := ev.Block
	var b Block
	switch in.Type {
	case "text":
		b.Text = in.Text
		if b.Text != "" {
			c.live(Delta{Text: b.Text})
		}
	case "tool_use":
		b = Block{Kind: CallBlock, ID: in.ID, Name: in.Name}
		c.live(Delta{Tool: in.Name})
	case "thinking":
		b = Block{Kind: ThinkingBlock, Text: in.Thinking, Opaque: in.Signature}
	case "redacted_thinking":
		b = Block{Kind: HiddenBlock, Opaque: in.Data}
	default:
		return &ModelError{Kind: Broken, Message: "it holds a " + clip(in.Type, 50) + ", which nobody has asked for"}
	}
	return c.parts.begin(ev.Index, b)
}

// claudeError is an error in the middle of a stream: the status has been sent before.
func claudeError(in json.RawMessage, message string) *ModelError {
	var shaped struct{ Type string }
	json.Unmarshal(in, &shaped) // it may be a text
	status := http.StatusInternalServerError
	switch shaped.Type {
	case "invalid_request_error", "not_found_error":
		status = http.StatusBadRequest
	case "authentication_error", "permission_error", "billing_error":
		status = http.StatusForbidden
	case "request_too_large":
		status = http.StatusRequestEntityTooLarge
	}
	e := refused(status, message)
	e.Status = 0
	return e
}
