package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
)

// maxCounted bounds what is held of an answer to look for counts in it, in bytes: a
// JSON value, or one line of a stream.
const maxCounted = 4 << 20

// checkEvery is how often an answer that continues is asked whether it may.
const checkEvery = time.Second

// counts is how providers say what a request has used. Each has names of its own.
// Sources: Anthropic's Messages API (usage of message, of message_start and of
// message_delta), OpenAI's Chat Completions (usage) and Responses (response.usage), Gemini's
// generateContent (usageMetadata).
type counts struct {
	Input         int64 `json:"input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Output        int64 `json:"output_tokens"`
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	PromptCount   int64 `json:"promptTokenCount"`
	Candidates    int64 `json:"candidatesTokenCount"`
	Thoughts      int64 `json:"thoughtsTokenCount"`
	ToolPrompt    int64 `json:"toolUsePromptTokenCount"`
}

// in and out are at most mostCounted: a number of a wire is no reason to overflow.
func (c *counts) in() int64 {
	return sum(c.Input, c.CacheCreation, c.CacheRead, c.Prompt, c.PromptCount, c.ToolPrompt)
}
func (c *counts) out() int64 { return sum(c.Output, c.Completion, c.Candidates, c.Thoughts) }

const mostCounted = 1 << 40

func sum(all ...int64) (n int64) {
	for _, one := range all {
		n += min(max(one, 0), mostCounted)
	}
	return min(n, mostCounted)
}

// told is where an answer, or a piece of one, has its counts.
type told struct {
	Usage    *counts `json:"usage"`
	Metadata *counts `json:"usageMetadata"`
	Message  *struct {
		Usage *counts `json:"usage"`
	} `json:"message"`
	Response *struct {
		Usage *counts `json:"usage"`
	} `json:"response"`
}

// counter looks for counts in an answer while it passes.
type counter struct {
	body   io.ReadCloser
	stream bool // server-sent events; else one JSON value
	// done is called once, when the answer has been read to its end or is given up.
	done func(*counter)
	// valid fails when the answer must go on no longer; nil: it may. It is asked when
	// something comes, checkEvery at most.
	valid   func() error
	checked time.Time

	held    *budget.Charge // of the request
	kept    bytes.Buffer
	paid    int64 // what kept is charged for
	lost    bool  // what is held is longer than is looked at
	in, out int64
	found   bool
	ended   bool // the answer came to its end
	bytes   int64
	events  int64 // of a stream, by their lines of data
}

// streams reports whether an answer of this type comes in pieces.
func streams(contentType string) bool {
	return strings.HasPrefix(contentType, "text/event-stream")
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.body.Read(b)
	if now := time.Now(); c.valid != nil && now.Sub(c.checked) >= checkEvery {
		c.checked = now
		if over := c.valid(); over != nil {
			c.finish()
			return 0, over
		}
	}
	c.bytes += int64(n)
	c.scan(b[:n])
	if err != nil {
		c.ended = err == io.EOF
		c.finish()
	}
	return n, err
}

func (c *counter) Close() error {
	err := c.body.Close()
	c.finish()
	return err
}

func (c *counter) finish() {
	if c.done == nil {
		return
	}
	if !c.lost {
		c.readUsage(c.kept.Bytes())
	}
	done := c.done
	c.done = nil
	c.drop()
	done(c)
}

func (c *counter) scan(b []byte) {
	for len(b) > 0 {
		piece, rest, line := b, []byte(nil), false
		if c.stream {
			if i := bytes.IndexByte(b, '\n'); i >= 0 {
				piece, rest, line = b[:i], b[i+1:], true
			}
		}
		if !c.lost && (c.kept.Len()+len(piece) > maxCounted || c.grow(len(piece)) != nil) {
			c.lost = true
			c.drop()
		}
		if !c.lost {
			c.kept.Write(piece)
		}
		if line {
			if data, ok := bytes.CutPrefix(c.kept.Bytes(), []byte("data:")); ok && !c.lost {
				c.events++
				c.readUsage(data)
			}
			c.kept.Reset()
			c.lost = false
		}
		b = rest
	}
}

// drop lets go of what is kept.
func (c *counter) drop() {
	c.held.Give(c.paid)
	c.kept, c.paid = bytes.Buffer{}, 0
}

// grow makes room for n more bytes, and charges for it.
func (c *counter) grow(n int) error {
	more := c.kept.Len() + n - c.kept.Cap()
	if more <= 0 {
		return nil
	}
	more = max(more, c.kept.Cap(), 4<<10)
	if err := c.held.Add(int64(more)); err != nil {
		return err
	}
	c.paid += int64(more)
	c.kept.Grow(c.kept.Cap() - c.kept.Len() + more)
	return nil
}

// readUsage takes the counts of a JSON value. In a stream they grow: the largest count.
func (c *counter) readUsage(data []byte) {
	if !bytes.Contains(data, []byte(`sage`)) { // usage, usageMetadata
		return
	}
	data, _ = bytes.CutPrefix(bytes.TrimSpace(data), []byte("data:"))
	var all []told
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '[' { // Gemini streams an array
		if json.Unmarshal(trimmed, &all) != nil {
			return
		}
	} else {
		var one told
		if json.Unmarshal(trimmed, &one) != nil {
			return
		}
		all = append(all, one)
	}
	for _, t := range all {
		places := []*counts{t.Usage, t.Metadata}
		if t.Message != nil {
			places = append(places, t.Message.Usage)
		}
		if t.Response != nil {
			places = append(places, t.Response.Usage)
		}
		for _, u := range places {
			if u != nil {
				c.found = true
				c.in, c.out = max(c.in, u.in()), max(c.out, u.out())
			}
		}
	}
}
