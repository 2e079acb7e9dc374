package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Attempt is one try to repair a service.
type Attempt struct {
	Number, Of int // from 1
	Story      Story
	Tools      []Tool // usually those of [Tools]
	Budget     Budget
	Prices     Prices              // zero: costs are not counted
	Redact     func(string) string // for all that goes to the model or to Record; nil: none
	Record     func(Event)         // the transcript, in order, redacted; nil: none
	Live       func(Delta)         // each piece of a reply as it comes, not redacted; nil: none
	// Patience is called while the model does not answer the first request. It waits, and
	// reports whether to ask again, which it must bound; nil: never. It is not called for
	// errors that a repetition cannot change, such as a wrong key.
	Patience func(ctx context.Context, err error) bool
}

// Budget bounds an attempt. A zero field has its default.
type Budget struct {
	Steps        int           // requests to the model; 40
	InputTokens  int64         // all that the model reads, again in each request; 500,000
	OutputTokens int64         // 100,000
	Wall         time.Duration // 10 min
	Cost         float64       // in the currency of the prices; 0: no bound
	Context      int           // bytes of a conversation; 400,000, at least 20,000
}

// Prices for a million tokens.
type Prices struct{ Input, Output, CacheRead, CacheWrite float64 }

func (p Prices) of(u Usage) float64 {
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output + float64(u.CacheRead)*p.CacheRead +
		float64(u.CacheWrite)*p.CacheWrite) / 1e6
}

// Outcome is the result of an attempt.
type Outcome struct {
	// Finished: the model says that it is done. This does not say whether the service is
	// well.
	Finished bool
	Summary  string // its last words, redacted, at most 2,000 bytes
	Steps    int    // requests
	Calls    int    // of tools, those that were not run included
	Usage    Usage
	Cost     float64
	// Why it ended: "finished", "end_turn", "refusal", "budget: steps" (input tokens,
	// output tokens, wall, cost, context), "loop: …" or "model: …".
	Why string
	// Unreached: the model gave no reply, so nothing was tried.
	Unreached bool
}

// Event is a line of the transcript.
type Event struct {
	// Kind is prompt (Text is the model's first input), reply (Text, Stop, Usage), call
	// (Tool, Call, Input), result (Tool, Call, Text, Error), note (Text: a message to the
	// model, or an error) or end (Text is Outcome.Why).
	Kind  string          `json:"kind"`
	Step  int             `json:"step"` // of requests, from 1; 0 before the first
	Text  string          `json:"text,omitempty"`
	Tool  string          `json:"tool,omitempty"`
	Call  string          `json:"call,omitempty"` // joins a call and its result
	Input json.RawMessage `json:"input,omitempty"`
	Error bool            `json:"error,omitempty"`
	Stop  Stop            `json:"stop,omitempty"`
	Usage *Usage          `json:"usage,omitempty"`
	// Cost of the attempt up to this reply, if there are prices.
	Cost float64 `json:"cost,omitempty"`
	// Message of a reply, as it is sent again, and whether a note was told to the model:
	// with both, a [Talk] can continue.
	Message *Message `json:"-"`
	Told    bool     `json:"-"`
}

const (
	minContext  = 20_000
	maxSummary  = 2000
	maxRecorded = 64 << 10 // of one text or input in the transcript
)

// Run makes an attempt. The error is that of ctx, or says why the attempt is impossible;
// everything that a model does is an Outcome.
func Run(ctx context.Context, m Model, a Attempt) (Outcome, error) {
	set, err := newToolset(a.Tools)
	if err != nil {
		return Outcome{}, err
	}
	r := &run{Attempt: a, model: m, set: set}
	r.defaults()
	limited, cancel := context.WithTimeout(ctx, r.Budget.Wall)
	defer cancel()
	r.out.Why, err = r.attempt(limited)
	r.out.Unreached = !r.answered
	if ctx.Err() != nil {
		return r.out, ctx.Err()
	}
	if err != nil {
		return r.out, err
	}
	r.record(Event{Kind: "end", Text: r.out.Why})
	return r.out, nil
}

type run struct {
	Attempt
	model    Model
	set      *toolset
	history  history
	progress progress
	out      Outcome
	answered bool  // the model has, once
	talk     *Talk // nil: it is an attempt
}

func (r *run) defaults() {
	b := &r.Budget
	if b.Steps <= 0 {
		b.Steps = 40
	}
	if b.InputTokens <= 0 {
		b.InputTokens = 500_000
	}
	if b.OutputTokens <= 0 {
		b.OutputTokens = 100_000
	}
	if b.Wall <= 0 {
		b.Wall = 10 * time.Minute
	}
	if b.Context <= 0 {
		b.Context = 400_000
	}
	b.Context = max(b.Context, minContext)
	if r.Redact == nil {
		r.Redact = func(s string) string { return s }
	}
	if r.Record == nil {
		r.Record = func(Event) {}
	}
}

func (r *run) record(e Event) {
	e.Step = r.out.Steps
	e.Text = bound(r.Redact(e.Text), maxRecorded)
	if e.Input != nil {
		e.Input = r.recorded(e.Input)
	}
	r.Record(e)
}

// recorded is an input as it may be kept: redacted, bounded and JSON.
func (r *run) recorded(in json.RawMessage) json.RawMessage {
	s := r.Redact(plain(string(in)))
	if len(s) <= maxRecorded && json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	quoted, err := json.Marshal(bound(s, maxRecorded))
	if err != nil {
		return nil
	}
	return quoted
}

// attempt asks until there is a reason to end, which it returns.
func (r *run) attempt(ctx context.Context) (string, error) {
	system, first := r.prompt()
	r.record(Event{Kind: "prompt", Text: system + "\n\n" + first})
	r.history.user(Block{Text: first})
	return r.loop(ctx, system)
}

// loop asks until there is a reason to end, which it returns.
func (r *run) loop(ctx context.Context, system string) (string, error) {
	shrunk := 0
	for {
		if !r.history.fit(r.Budget.Context) {
			return "budget: context", nil
		}
		if why := r.spent(len(system)); why != "" {
			return why, nil
		}
		r.out.Steps++
		req := Request{System: system, Messages: append([]Message(nil), r.history.messages...), Tools: r.Tools, MaxTokens: r.left()}
		reply, err := r.model.Ask(ctx, req, r.Live)
		r.out.Usage.Add(reply.Usage)
		r.out.Cost += r.Prices.of(reply.Usage)
		if err != nil {
			var e *ModelError
			switch {
			case ctx.Err() != nil:
				return "budget: wall", nil
			case errors.As(err, &e) && e.Kind == TooLong && shrunk < 3 && r.Budget.Context > minContext:
				shrunk++
				r.Budget.Context = max(min(r.Budget.Context, r.history.size())/2, minContext)
				r.record(Event{Kind: "note", Text: err.Error()})
				continue
			}
			r.record(Event{Kind: "note", Text: err.Error(), Error: true})
			if r.mayAnswer(err) && r.Patience(ctx, err) {
				r.out.Steps-- // it is the same request
				continue
			}
			return "model: " + r.Redact(err.Error()), nil
		}
		r.answered = true
		if why := r.take(ctx, reply); why != "" {
			return why, nil
		}
	}
}

// mayAnswer reports whether somebody waits for a model that has not answered yet, and may.
func (r *run) mayAnswer(err error) bool {
	var e *ModelError
	return r.Patience != nil && !r.answered && errors.As(err, &e) && e.Kind <= Broken
}

// spent says which budget the next request would exceed, or "".
func (r *run) spent(system int) string {
	u, b := r.out.Usage, r.Budget
	next := int64(r.history.size()+system+r.set.size) / 4
	switch {
	case r.out.Steps >= b.Steps:
		return "budget: steps"
	case u.read()+next > b.InputTokens:
		return "budget: input tokens"
	case u.Output >= b.OutputTokens:
		return "budget: output tokens"
	case b.Cost > 0 && r.out.Cost >= b.Cost:
		return "budget: cost"
	}
	return ""
}

// left is how many tokens the next reply may have.
func (r *run) left() int {
	return int(min(r.Budget.OutputTokens-r.out.Usage.Output, 1<<30))
}

// take acts on a reply, and returns why the attempt ends, or "".
func (r *run) take(ctx context.Context, reply Reply) string {
	text := ""
	for _, b := range reply.Blocks {
		if b.Kind == TextBlock && !blank(b.Text) {
			text = b.Text
		}
	}
	before := len(r.history.messages)
	calls := r.history.assistant(reply.Blocks, r.Redact)
	said := Event{Kind: "reply", Text: text, Stop: reply.Stop, Usage: &reply.Usage, Cost: r.out.Cost}
	if len(r.history.messages) > before {
		said.Message = &r.history.messages[before]
	}
	r.record(said)
	if text != "" {
		r.out.Summary = clip(r.Redact(plain(text)), maxSummary)
	}
	if reply.Stop == Refusal {
		return "refusal"
	}
	r.out.Calls += len(calls)
	if len(calls) > 0 {
		r.progress.quiet = 0
		return r.run(ctx, calls, reply.Stop == MaxTokens || reply.Stop == Full)
	}
	say := ""
	switch reply.Stop {
	case EndTurn, "stop_sequence":
		r.out.Finished = true
		return "end_turn"
	case Paused:
		say = "Go on."
	case ToolUse:
		say = "Your reply called no tool. Call one, or finish if you are done."
	case MaxTokens:
		say = "Your reply was cut off: it was too long. Go on, in shorter replies."
	case Full:
		r.Budget.Context = max(min(r.Budget.Context, r.history.size())/2, minContext)
		say = "Older parts of this conversation have been shortened. Go on."
	default:
		return "model: it stopped for a reason that is not known: " + name(string(reply.Stop))
	}
	if why := r.progress.silence(); why != "" {
		return why
	}
	r.record(Event{Kind: "note", Text: say, Told: true})
	if len(r.history.messages) == before { // it said nothing: two messages of ours would follow each other
		last := r.history.messages[before-1]
		r.history.messages[before-1] = Message{User, append(append([]Block(nil), last.Blocks...), Block{Text: say})}
		return ""
	}
	r.history.user(Block{Text: say})
	return ""
}

// run answers each call of a reply. If the reply was cut off, its last call is not
// run: what is missing cannot be known.
func (r *run) run(ctx context.Context, calls []Block, cut bool) (why string) {
	var results []Block
	failed := false
	for i, call := range calls {
		if r.talk != nil {
			if given, ok := r.talk.Results[call.ID]; ok {
				results = append(results, given)
				failed = failed || given.Error
				continue
			}
		}
		r.record(Event{Kind: "call", Tool: clip(name(call.Name), 64), Call: call.ID, Input: call.Input})
		var res result
		tool, known := r.set.tools[call.Name]
		switch {
		case why != "" || ctx.Err() != nil:
			res = result{err: errors.New("not run: the attempt has ended")}
		case cut && i == len(calls)-1:
			res = result{err: errors.New("not run: your reply was too long, and was cut off within this call. Make smaller calls, for instance several edits")}
		case i >= maxCalls:
			res = result{err: fmt.Errorf("not run: at most %d calls in one reply", maxCalls)}
		case tool.Last && failed:
			res = result{err: errors.New("not run: another call of this reply has failed. Look at its result first")}
		default:
			res = r.set.run(ctx, call, r.act())
			if errors.Is(res.err, ErrAsked) {
				return waits
			}
		}
		text := r.shown(call, res)
		r.record(Event{Kind: "result", Tool: clip(name(call.Name), 64), Call: call.ID, Text: text, Error: res.err != nil})
		results = append(results, Block{Kind: ResultBlock, ID: call.ID, Text: text, Error: res.err != nil})
		failed = failed || res.err != nil
		if why != "" || ctx.Err() != nil {
			continue
		}
		if known && tool.Last && res.err == nil {
			r.out.Finished = true
			r.out.Summary = clip(r.Redact(plain(res.text)), maxSummary)
			why = "finished"
			continue
		}
		if res.run {
			why = r.progress.call(call.Name, tool, call.Input, res)
		}
	}
	r.history.user(results...)
	if ctx.Err() != nil && why == "" {
		why = "budget: wall"
	}
	return why
}

// shown is a result as the model sees it: redacted before it is bounded, so that
// no part of a secret is left, and bounded before it is wrapped.
func (r *run) shown(call Block, res result) string {
	if res.err == nil && res.text == "" {
		return "done, no output"
	}
	out := ""
	if res.err != nil {
		out = clip(r.Redact(plain(res.err.Error())), maxSummary)
	}
	if res.text != "" {
		data := asData("result of "+clip(name(call.Name), 64), bound(r.Redact(plain(res.text)), maxResult))
		if out != "" {
			out += "\n"
		}
		out += data
	}
	return out
}
