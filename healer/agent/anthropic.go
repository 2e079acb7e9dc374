package agent

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
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
	// The SDK reads no environment here: only commands do. It tries nothing again:
	// it would not where a stream breaks, and client does both.
	m.one = &claude{
		model: c.Model, max: m.MaxTokens, places: places,
		api: anthropic.NewMessageService(option.WithoutEnvironmentDefaults(), option.WithoutOpenTelemetry(),
			option.WithBaseURL(m.BaseURL), option.WithAPIKey(c.Key), option.WithMaxRetries(0)),
	}
	return m, nil
}

type claude struct {
	model  string
	max    int
	places *atPlaces
	api    anthropic.MessageService
}

func (c *claude) once(ctx context.Context, hc *exchange, r Request, live func(Delta)) (Reply, error) {
	params := c.params(r)
	return c.places.ask(hc, func() (Reply, error) { return c.stream(ctx, hc, params, live) })
}

func (c *claude) stream(ctx context.Context, hc *exchange, params anthropic.MessageNewParams, live func(Delta)) (Reply, error) {
	s := c.api.NewStreaming(ctx, params, option.WithHTTPClient(hc))
	defer s.Close()
	var (
		reply Reply
		parts assembly
	)
	for s.Next() {
		ev := s.Current()
		var err error
		switch ev.Type {
		case "message_start":
			u := ev.Message.Usage
			reply.Usage = Usage{Input: u.InputTokens, Output: u.OutputTokens, CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens}
		case "content_block_start":
			err = c.begin(&parts, ev, live)
		case "content_block_delta":
			// The SDK's own Accumulate takes input that is no JSON for {}, without an error.
			switch d := ev.Delta; d.Type {
			case "text_delta":
				live(Delta{Text: d.Text})
				err = parts.text(ev.Index, d.Text)
			case "thinking_delta":
				err = parts.text(ev.Index, d.Thinking)
			case "signature_delta":
				err = parts.opaque(ev.Index, d.Signature)
			case "input_json_delta":
				err = parts.input(ev.Index, d.PartialJSON)
			}
		case "message_delta":
			if ev.Delta.StopReason != "" {
				reply.Stop = Stop(ev.Delta.StopReason)
			}
			u, v := &reply.Usage, ev.Usage // these are totals; old servers leave some out
			u.Input, u.Output = max(u.Input, v.InputTokens), max(u.Output, v.OutputTokens)
			u.CacheRead, u.CacheWrite = max(u.CacheRead, v.CacheReadInputTokens), max(u.CacheWrite, v.CacheCreationInputTokens)
		case "message_stop":
			reply.Blocks = parts.blocks()
			return reply, nil
		}
		if err != nil {
			return reply, err
		}
	}
	if err := s.Err(); err != nil {
		return reply, c.wrong(hc, err)
	}
	// The SDK takes a body that just ends for the end of the message.
	return reply, &ModelError{Kind: Broken, Message: "the stream ended before the message did"}
}

func (c *claude) begin(parts *assembly, ev anthropic.MessageStreamEventUnion, live func(Delta)) error {
	in := ev.ContentBlock
	var b Block
	switch in.Type {
	case "text":
		b.Text = in.Text
		if b.Text != "" {
			live(Delta{Text: b.Text})
		}
	case "tool_use":
		b = Block{Kind: CallBlock, ID: in.ID, Name: in.Name}
		live(Delta{Tool: in.Name})
	case "thinking":
		b = Block{Kind: ThinkingBlock, Text: in.Thinking, Opaque: in.Signature}
	case "redacted_thinking":
		b = Block{Kind: HiddenBlock, Opaque: in.Data}
	default:
		return &ModelError{Kind: Broken, Message: "it holds a " + clip(in.Type, 50) + ", which nobody has asked for"}
	}
	return parts.begin(ev.Index, b)
}

// params is the request in the SDK's words. The prompt and all but the newest
// message are the same in the next request: they are marked for the cache.
func (c *claude) params(r Request) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: c.model, MaxTokens: int64(r.bound(c.max))}
	if r.System != "" {
		p.System = []anthropic.TextBlockParam{{Text: r.System, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	}
	for _, t := range r.Tools {
		rest := maps.Clone(t.Schema)
		delete(rest, "type")
		delete(rest, "properties")
		p.Tools = append(p.Tools, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
			Name: t.Name, Description: anthropic.String(t.Description),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: t.Schema["properties"], ExtraFields: rest},
		}})
	}
	for _, m := range r.Messages {
		to := anthropic.MessageParam{Role: anthropic.MessageParamRoleUser}
		if m.Role == Assistant {
			to.Role = anthropic.MessageParamRoleAssistant
		}
		for _, b := range m.Blocks {
			to.Content = append(to.Content, claudeBlock(b))
		}
		p.Messages = append(p.Messages, to)
	}
	if n := len(p.Messages); n > 0 {
		last := p.Messages[n-1].Content
		switch b := &last[len(last)-1]; {
		case b.OfText != nil:
			b.OfText.CacheControl = anthropic.NewCacheControlEphemeralParam()
		case b.OfToolResult != nil:
			b.OfToolResult.CacheControl = anthropic.NewCacheControlEphemeralParam()
		}
	}
	return p
}

func claudeBlock(b Block) anthropic.ContentBlockParamUnion {
	switch b.Kind {
	case CallBlock:
		return anthropic.NewToolUseBlock(b.ID, b.Input, b.Name)
	case ResultBlock:
		return anthropic.NewToolResultBlock(b.ID, b.Text, b.Error)
	case HiddenBlock:
		return anthropic.NewRedactedThinkingBlock(b.Opaque)
	case ThinkingBlock:
		return anthropic.NewThinkingBlock(b.Opaque, b.Text)
	}
	return anthropic.NewTextBlock(b.Text)
}

// wrong says what an error of the SDK means.
func (c *claude) wrong(hc *exchange, err error) error {
	var mine *ModelError
	if errors.As(err, &mine) {
		return mine
	}
	var e *anthropic.Error
	if !errors.As(err, &e) {
		if hc.status == http.StatusOK {
			return &ModelError{Kind: Broken, Err: err}
		}
		return &ModelError{Kind: Unavailable, Err: err}
	}
	var body struct{ Error struct{ Message string } }
	if json.Unmarshal([]byte(e.RawJSON()), &body) != nil || body.Error.Message == "" {
		body.Error.Message = e.RawJSON()
	}
	if e.StatusCode >= 400 {
		return refused(e.StatusCode, body.Error.Message)
	}
	// An error event in the middle of a stream: the status has been sent before.
	status := http.StatusInternalServerError
	switch e.Type() {
	case "invalid_request_error", "not_found_error":
		status = http.StatusBadRequest
	case "authentication_error", "permission_error", "billing_error":
		status = http.StatusForbidden
	case "request_too_large":
		status = http.StatusRequestEntityTooLarge
	}
	inStream := refused(status, body.Error.Message)
	inStream.Status = 0
	return inStream
}
