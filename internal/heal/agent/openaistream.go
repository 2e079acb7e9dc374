package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// chatPart is a chunk of a stream, or the whole reply of a server that does not
// stream: that one has a message where a chunk has a delta.
type chatPart struct {
	Choices []struct {
		Index        int         `json:"index"`
		Delta        chatContent `json:"delta"`
		Message      chatContent `json:"message"`
		FinishReason string      `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type chatContent struct {
	Content string `json:"content"`
	Refusal string `json:"refusal"`
	Calls   []struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// chatReply collects the parts of a reply.
type chatReply struct {
	reply   Reply
	parts   assembly
	calls   map[int]int64 // index of a call in the stream → number of its part
	last    int64         // the newest part that is a call
	refused bool
	live    func(Delta)
}

// readChatStream reads server-sent events, each a chunk, until [DONE]. A reply
// without a reason to finish is not whole, also if [DONE] comes. One that has a
// reason is whole without [DONE]: some servers leave it out.
func readChatStream(body io.Reader, live func(Delta)) (Reply, error) {
	c := chatReply{live: live}
	if _, err := readEvents(body, c.event); err != nil {
		return c.reply, err
	}
	return c.whole()
}

// readChat reads a reply that is not streamed.
func readChat(body io.Reader, live func(Delta)) (Reply, error) {
	b, err := io.ReadAll(body)
	c := chatReply{live: live}
	if err != nil {
		return c.reply, &ModelError{Kind: Broken, Err: err}
	}
	if _, err := c.event(b); err != nil {
		return c.reply, err
	}
	return c.whole()
}

func (c *chatReply) event(data []byte) (done bool, err error) {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return false, nil
	case string(data) == "[DONE]":
		return true, nil
	}
	var part chatPart
	if err := json.Unmarshal(data, &part); err != nil {
		return false, notJSON(err)
	}
	if len(part.Error) > 0 && string(part.Error) != "null" {
		e := refused(http.StatusInternalServerError, errorMessage(data))
		e.Status = 0
		return false, e
	}
	if u := part.Usage; u != nil {
		cached := min(tokens(u.Details.Cached), tokens(u.Prompt))
		c.reply.Usage = Usage{Input: tokens(u.Prompt) - cached, CacheRead: cached, Output: tokens(u.Completion)}
	}
	for _, choice := range part.Choices {
		if choice.Index != 0 {
			continue // one was asked for
		}
		for _, in := range []chatContent{choice.Delta, choice.Message} {
			if err := c.content(in); err != nil {
				return false, err
			}
		}
		if choice.FinishReason != "" {
			c.reply.Stop = chatStop(choice.FinishReason)
		}
	}
	return false, nil
}

func chatStop(reason string) Stop {
	switch reason {
	case "stop":
		return EndTurn
	case "tool_calls", "function_call":
		return ToolUse
	case "length":
		return MaxTokens
	case "content_filter":
		return Refusal
	}
	return Stop(clip(reason, 50))
}

// content adds text, which is part 0, and calls, which are those after it.
func (c *chatReply) content(in chatContent) error {
	if in.Refusal != "" {
		c.refused = true
		in.Content += in.Refusal
	}
	if in.Content != "" {
		c.live(Delta{Text: in.Content})
		if c.parts.parts[0] == nil {
			if err := c.parts.begin(0, Block{}); err != nil {
				return err
			}
		}
		if err := c.parts.text(0, in.Content); err != nil {
			return err
		}
	}
	for _, call := range in.Calls {
		n, err := c.call(call.Index, call.ID, call.Function.Name)
		if err != nil {
			return err
		}
		args := call.Function.Arguments
		var text string
		if json.Unmarshal(args, &text) == nil { // a string, or null; some servers send the object itself
			args = json.RawMessage(text)
		}
		if err := c.parts.input(n, string(args)); err != nil {
			return err
		}
	}
	return nil
}

// call finds the part that a piece of a call belongs to, or begins one. An index
// says which; some servers send none, or the same for all calls, and tell them apart
// by their ids.
func (c *chatReply) call(index *int, id, name string) (int64, error) {
	at, known := c.last, c.last > 0
	if index != nil {
		at, known = c.calls[*index], c.calls[*index] > 0
	}
	if known {
		b := c.parts.parts[at]
		if id == "" || b.ID == "" || id == b.ID {
			if b.ID == "" {
				b.ID = id
			}
			if b.Name == "" {
				b.Name = name
			}
			return at, c.parts.count(len(id) + len(name))
		}
	}
	at = int64(len(c.parts.parts) + 1)
	if err := c.parts.begin(at, Block{Kind: CallBlock, ID: id, Name: name}); err != nil {
		return 0, err
	}
	c.live(Delta{Tool: name})
	if c.calls == nil {
		c.calls = map[int]int64{}
	}
	if index != nil {
		c.calls[*index] = at
	}
	c.last = at
	return at, nil
}

func (c *chatReply) whole() (Reply, error) {
	if c.reply.Stop == "" {
		return c.reply, &ModelError{Kind: Broken, Message: "the stream ended before the message did"}
	}
	if c.refused {
		c.reply.Stop = Refusal
	}
	c.reply.Blocks = c.parts.blocks()
	return c.reply, nil
}
