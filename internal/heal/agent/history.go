package agent

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

const (
	keptMessages = 6   // the newest ones stay as they are, while there is another way
	keptBytes    = 400 // of what is shortened
)

// history is the conversation. Each call in it has its result in the next
// message, and no message is empty.
type history struct {
	messages []Message
	ids      map[string]bool
	calls    int
}

func (m Message) size() int {
	n := 16
	for _, b := range m.Blocks {
		n += 32 + len(b.Text) + len(b.ID) + len(b.Name) + len(b.Input) + len(b.Opaque)
	}
	return n
}

func (h *history) size() int {
	n := 0
	for _, m := range h.messages {
		n += m.size()
	}
	return n
}

func (h *history) user(blocks ...Block) {
	h.messages = append(h.messages, Message{User, blocks})
}

var (
	goodID   = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	goodName = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
)

// assistant adds a reply in a form that may be sent again, and returns its calls
// as they were written, under the ids that they have from now on. A reply that is empty
// is not added. Also what the model itself has written is redacted: should it have
// found a secret, it is not sent a second time.
func (h *history) assistant(blocks []Block, redact func(string) string) (calls []Block) {
	var kept []Block
	said := false
	for _, b := range blocks {
		switch b.Kind {
		case TextBlock:
			if b.Text = redact(plain(b.Text)); blank(b.Text) {
				continue
			}
			said = true
		case CallBlock:
			h.calls++
			if !goodID.MatchString(b.ID) || h.ids[b.ID] {
				b.ID = fmt.Sprintf("call_%d", h.calls)
				for h.ids[b.ID] {
					b.ID += "_"
				}
			}
			if h.ids == nil {
				h.ids = map[string]bool{}
			}
			h.ids[b.ID] = true
			calls = append(calls, b)
			if !goodName.MatchString(b.Name) {
				b.Name = "unknown"
			}
			b.Input = object(json.RawMessage(redact(string(b.Input))))
			said = true
		case ResultBlock:
			continue
		}
		kept = append(kept, b)
	}
	if said { // thinking alone is no message
		h.messages = append(h.messages, Message{Assistant, kept})
	}
	return calls
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// object is the input of a call, or an empty one in place of what is no object:
// providers refuse a conversation that holds such.
func object(raw json.RawMessage) json.RawMessage {
	var m map[string]any
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return json.RawMessage(`{}`)
	}
	out, err := json.Marshal(m) // also what is no UTF-8 is now
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return out
}

// fit shortens old results and inputs until the conversation has at most n bytes,
// and goes well below at once: what is shortened is new to a provider's cache. The
// first message, which says what is wrong, and the newest ones are shortened last.
// It reports whether it has succeeded.
func (h *history) fit(n int) bool {
	if h.size() <= n {
		return true
	}
	for _, way := range []struct{ kept, bytes int }{{keptMessages, keptBytes}, {1, keptBytes}, {0, keptBytes / 10}} {
		for i := 1; i < len(h.messages)-way.kept; i++ {
			h.messages[i] = shorten(h.messages[i], way.bytes)
			if h.size() <= n/2 {
				return true
			}
		}
		if h.size() <= n {
			return true
		}
	}
	h.messages[0] = shorten(h.messages[0], n/4/len(h.messages[0].Blocks))
	return h.size() <= n
}

// shorten returns a message with the same blocks, and texts that are little longer than
// n. What was sent before is not written to: a request may still hold it.
func shorten(m Message, n int) Message {
	out := Message{Role: m.Role}
	for _, b := range m.Blocks {
		switch b.Kind {
		case TextBlock, ResultBlock:
			if len(b.Text) > 2*n {
				b.Text = "[shortened]\n" + bound(b.Text, n)
			}
		case CallBlock:
			b.Input = shortInput(b.Input, n)
		}
		out.Blocks = append(out.Blocks, b)
	}
	return out
}

// shortInput bounds the texts in the input of an old call. What is no text is left
// out if there is much of it.
func shortInput(raw json.RawMessage, n int) json.RawMessage {
	if len(raw) <= 2*n {
		return raw
	}
	var m map[string]any
	if json.Unmarshal(raw, &m) != nil {
		return json.RawMessage(`{}`)
	}
	for k, v := range m {
		if v, ok := v.(string); ok && len(v) > n {
			m[k] = "[shortened]\n" + bound(v, n/2)
		}
	}
	out, err := json.Marshal(m)
	if err != nil || len(out) > 8*n+8*keptBytes {
		return json.RawMessage(`{}`)
	}
	return out
}
