package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

type inputArgs struct {
	ID    string   `json:"id"`
	Text  string   `json:"text,omitempty" jsonschema:"as it is: end a line with a newline"`
	Keys  []string `json:"keys,omitempty" jsonschema:"after text: enter tab esc space backspace up down left right home end delete pageup pagedown ctrl-a..ctrl-z"`
	Close bool     `json:"close,omitempty" jsonschema:"then end stdin"`
	until
	inSandbox
}

var keyCodes = map[string]string{
	"enter": "\r", "tab": "\t", "esc": "\x1b", "space": " ", "backspace": "\x7f",
	"up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
	"delete": "\x1b[3~", "pageup": "\x1b[5~", "pagedown": "\x1b[6~",
}

// keyed is what keys send. On a pipe there is no terminal that makes a newline of Enter.
func keyed(keys []string, tty bool) (string, error) {
	var b strings.Builder
	for i, k := range keys {
		name := strings.ToLower(k)
		code, ok := keyCodes[name]
		if rest, ctrl := strings.CutPrefix(name, "ctrl-"); ctrl && len(rest) == 1 && rest[0] >= 'a' && rest[0] <= 'z' {
			code, ok = string(rest[0]&0x1f), true
		}
		switch {
		case !ok:
			return "", &process.InvalidError{Field: fmt.Sprintf("keys[%d]", i),
				Reason: fmt.Sprintf("is %.40q, which is no key; the description of keys has them", k)}
		case name == "enter" && !tty:
			code = "\n"
		}
		b.WriteString(code)
	}
	return b.String(), nil
}

// mark notes where the output of a process ends before it is given input, so that a call
// that is made again shows what came since the first one; and which run of a service was
// the newest before it is restarted, so that the run after it is not restarted, too.
func (f *Face) mark(ctx context.Context, c *call, m *message) {
	if m.Method != "tools/call" {
		return
	}
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(m.Params, &call) != nil {
		return
	}
	switch call.Name {
	case "input":
		f.markEnds(ctx, c, call.Arguments)
	case "service":
		var a serviceArgs
		if f.cfg.Services != nil && c.place.sandbox == "" && json.Unmarshal(call.Arguments, &a) == nil && a.Action == "restart" {
			c.from[0] = f.runOf(ctx, a.Name)
			c.marked = c.from[0] > 0 && !c.again // a repeated one knows nothing of the first
		}
	}
}

func (f *Face) markEnds(ctx context.Context, c *call, arguments json.RawMessage) {
	var a inputArgs
	if json.Unmarshal(arguments, &a) != nil {
		return
	}
	at, err := f.placeOf(ctx, c, a.Sandbox)
	if err != nil {
		return // the tool says so
	}
	if p, err := f.find(ctx, at, a.ID); err == nil {
		if info, err := p.Info(process.Brief(ctx)); err == nil {
			c.from, c.marked = ends(&info), true
		}
	}
}

func ends(info *process.Info) (at [4]int64) {
	for _, s := range info.Streams {
		at[s.Stream] = s.End
	}
	return at
}

func (f *Face) input(ctx context.Context, req *sdk.CallToolRequest, c *call, a inputArgs) (*answer, error) {
	var n notes
	p, info, err := f.known(ctx, c, a.Sandbox, a.ID)
	if err != nil {
		return nil, err
	}
	if !c.marked {
		c.from = ends(&info)
	}
	cond, err := a.condition(c.from)
	if err != nil {
		return nil, err
	}
	tty := info.Spec.PTY != nil
	keys, err := keyed(a.Keys, tty)
	if err != nil {
		return nil, err
	}
	data := a.Text + keys
	if a.Close && tty {
		data += "\x04" // what a terminal takes for the end
	}
	switch {
	case data == "" && !a.Close:
		return nil, &process.InvalidError{Field: "text", Reason: "is empty, and so is keys; give one, or close"}
	case len(data) > process.MaxWhole:
		return nil, &process.InvalidError{Field: "text", Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(data), process.MaxWhole)}
	}
	deadline := time.Now().Add(a.patience(&n))
	tokens := allowance(&n, a.Tokens)
	giving, stop := context.WithDeadline(ctx, deadline)
	err = give(giving, p, c, []byte(data), a.Close && !tty)
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("input of %s: %w", info.ID, err)
	}
	if cond == (process.Until{From: c.from}) {
		cond.Input = true // it reads what it was given, and then the next, or exits
	}
	out, err := await(ctx, req, c, p, cond, deadline)
	if err != nil {
		return nil, err
	}
	return f.report(ctx, p, &out, cond, c.from, share, n, tokens)
}
