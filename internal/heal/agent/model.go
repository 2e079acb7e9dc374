package agent

import (
	"context"
	"encoding/json"
	"fmt"
)

// Model answers one request. It repeats a request itself if that may help.
//
// An error is a *[ModelError], or that of the context. Reply.Usage is also set with an
// error.
type Model interface {
	// Ask calls live, unless it is nil, with each piece of the reply as it comes.
	Ask(ctx context.Context, r Request, live func(Delta)) (Reply, error)
}

// Request is the input of a model.
type Request struct {
	System   string
	Messages []Message // the first and the last are the user's
	Tools    []Tool
	// MaxTokens bounds the reply; 0 or more than Config.MaxTokens means Config.MaxTokens.
	MaxTokens int
}

// Role is the author of a message.
type Role uint8

// Roles of messages.
const (
	User      Role = iota // ours: the story, and the results of calls
	Assistant             // the model's
)

// Message is one turn of the conversation. It has at least one block. A stored [Talk] is
// JSON.
type Message struct {
	Role   Role    `json:"role,omitempty"`
	Blocks []Block `json:"blocks"`
}

// BlockKind says what a block is.
type BlockKind uint8

// Kinds of blocks.
const (
	TextBlock     BlockKind = iota // Text
	CallBlock                      // the model calls a tool: ID, Name, Input
	ResultBlock                    // what became of the call ID: Text, Error
	ThinkingBlock                  // Text, and Opaque, its signature: given back to the model as they came
	HiddenBlock                    // Opaque: thinking that only the provider can read; given back as well
)

// Block is a part of a message.
type Block struct {
	Kind BlockKind `json:"kind,omitempty"`
	Text string    `json:"text,omitempty"`
	ID   string    `json:"id,omitempty"`   // of a call: unique in the conversation, [A-Za-z0-9_-]
	Name string    `json:"name,omitempty"` // of the tool
	// of a call. In a Reply as the model wrote it, which need not be JSON; in a Request an object
	Input  json.RawMessage `json:"input,omitempty"`
	Error  bool            `json:"error,omitempty"` // the call failed, or was not run
	Opaque string          `json:"opaque,omitempty"`
}

// Stop says why a reply ended.
type Stop string

// What replies end with. Other reasons of providers are passed on as they are.
const (
	EndTurn   Stop = "end_turn"
	ToolUse   Stop = "tool_use"
	MaxTokens Stop = "max_tokens" // the reply is cut off
	Paused    Stop = "pause_turn" // the model wants to go on
	Refusal   Stop = "refusal"
	Full      Stop = "model_context_window_exceeded"
)

// Reply is a whole answer.
type Reply struct {
	Blocks []Block
	Stop   Stop
	Usage  Usage
}

// Usage counts tokens, including those of failed tries. If a provider does not count them,
// a token is estimated as four bytes.
type Usage struct {
	Input      int64 `json:"input"` // neither read from a cache nor written to it
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// tokens is a count that a provider states, within what sums of them can hold.
func tokens(n int64) int64 { return min(max(n, 0), 1<<40) }

// Add adds another usage.
func (u *Usage) Add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite += v.CacheWrite
}

// read is all that went to the model.
func (u Usage) read() int64 { return u.Input + u.CacheRead + u.CacheWrite }

// Delta is a piece of a reply.
type Delta struct {
	Again bool   // what came before is void: the request is tried again
	Text  string // of the answer
	Tool  string // a call of this tool begins
}

// ErrorKind says what to do about an error.
type ErrorKind uint8

// Kinds of errors.
const (
	Unavailable  ErrorKind = iota // overloaded, limited, down, not reached: later
	Broken                        // answered with what is no whole reply
	Unauthorized                  // the key, or its rights
	Invalid                       // the request, the model's name or the address
	TooLong                       // the conversation
)

// ModelError says why there is no reply.
type ModelError struct {
	Kind    ErrorKind
	Status  int    // of HTTP; 0: there was none
	Message string // what the provider says, without the key, at most 500 bytes
	Err     error  // may be nil
}

func (e *ModelError) Error() string {
	what := map[ErrorKind]string{
		Unavailable:  "the model is not available",
		Broken:       "the model's reply broke off",
		Unauthorized: "the model's provider refuses the key",
		Invalid:      "the model's provider refuses the request",
		TooLong:      "the conversation is too long for the model",
	}[e.Kind]
	if e.Status != 0 {
		what = fmt.Sprintf("%s (HTTP %d)", what, e.Status)
	}
	if e.Message != "" {
		return what + ": " + e.Message
	}
	if e.Err != nil {
		return what + ": " + e.Err.Error()
	}
	return what
}

func (e *ModelError) Unwrap() error { return e.Err }
