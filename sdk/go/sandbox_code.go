package tend

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// CodeOptions say where a cell runs, and with what. The zero value is Python's context for cells that name none.
type CodeOptions struct {
	// Context is the ID of one; or Language names the language whose own context it is: python, javascript, typescript,
	// bash, or one whose kernel of Jupyter is installed in the sandbox, such as r and java. At most one of the two.
	Context, Language string
	// Env are variables for this cell alone.
	Env map[string]string
	// Timeout interrupts the cell, as Ctrl-C does; its context keeps its variables. 0: none.
	Timeout time.Duration
	// OnEvent is called with each event as it comes: "stdout", "stderr", "result" or "error".
	OnEvent func(CodeEvent)
}

// CodeEvent is what a cell does: it prints Text, shows Value, or fails with Err.
type CodeEvent struct {
	Kind  string // "stdout", "stderr", "result" or "error"
	Text  string
	Value *CodeValue
	Err   *CodeError
}

// CodeValue is one value that a cell has shown, in all the forms that it has. PNG, JPEG and PDF are as base64.
type CodeValue struct {
	// Main: it is the value of the cell's last expression.
	Main       bool            `json:"is_main_result"`
	Text       string          `json:"text"`
	HTML       string          `json:"html"`
	Markdown   string          `json:"markdown"`
	SVG        string          `json:"svg"`
	PNG        string          `json:"png"`
	JPEG       string          `json:"jpeg"`
	PDF        string          `json:"pdf"`
	LaTeX      string          `json:"latex"`
	JavaScript string          `json:"javascript"`
	JSON       json.RawMessage `json:"json"`
	// Data is a DataFrame by columns, Chart what a matplotlib figure shows, Extra what has another MIME type.
	Data  json.RawMessage            `json:"data"`
	Chart json.RawMessage            `json:"chart"`
	Extra map[string]json.RawMessage `json:"extra"`
}

// CodeError is the exception with which a cell has ended.
type CodeError struct{ Name, Value, Traceback string }

func (e *CodeError) Error() string { return e.Name + ": " + e.Value }

// CodeResult is what a cell has done.
type CodeResult struct {
	// Text is that of the value of the last expression; "": it has none.
	Text           string
	Values         []CodeValue
	Stdout, Stderr string
	// Err: the cell has failed. nil: it has not.
	Err *CodeError
	// Count is which cell of its context it is, from 1 on.
	Count int
	// TimedOut: it was interrupted at CodeOptions.Timeout.
	TimedOut bool
}

// CodeContext is a place for cells that see each other's variables.
type CodeContext struct {
	ID, Language string
	// Dir is where its kernel has started.
	Dir string
}

// Code runs a cell, as a notebook does, and returns when it has ended; a cell that fails is no error of Code. The sandbox is
// from the template code-interpreter-v1, or one that begins with it; otherwise the error is [process.ErrUnsupported]. A
// lost connection, or a server that is replaced, loses nothing. When ctx ends the cell is interrupted.
func (s *Sandbox) Code(ctx context.Context, code string, o CodeOptions) (*CodeResult, error) {
	c, err := s.Client(ctx)
	if err != nil {
		return nil, err
	}
	req := &tendv1.RunCellRequest{Code: code, Context: o.Context, Language: o.Language, Env: o.Env, Cell: strings.ToLower(rand.Text())}
	if err := sendable("code", req); err != nil {
		return nil, err
	}
	var (
		out       CodeResult
		over      bool
		execution atomic.Value // of string, once it is known
		late      atomic.Bool
	)
	interrupt := func() {
		id, _ := execution.Load().(string)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
		defer cancel()
		if id != "" {
			// If it fails the cell runs on, as one whose client has died.
			_ = c.call(ctx, unary(c.cells.CancelCell, &tendv1.CancelCellRequest{Execution: id}, nil))
		}
	}
	if o.Timeout > 0 {
		timer := time.AfterFunc(o.Timeout, func() { late.Store(true); interrupt() })
		defer timer.Stop()
	}
	err = c.repeat(ctx, "run code", func(error) bool { return over }, func(a *attempts) error {
		err := receive(ctx, c, c.cells.RunCell, req, errAway, func(m *tendv1.RunCellResponse) error {
			a.progress()
			if m.GetExecution() != "" {
				execution.Store(m.GetExecution())
			}
			if m.GetGoingAway() {
				return errAway
			}
			if len(m.GetEvent()) == 0 {
				return nil
			}
			req.From++
			if err := out.add(m.GetEvent(), &over, o.OnEvent); err != nil {
				return err
			}
			if over {
				return io.EOF
			}
			return nil
		})
		req.Again = true
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			interrupt()
		}
		return nil, knownCall(err, "is")
	}
	out.TimedOut = late.Load()
	return &out, nil
}

// cancelTime bounds how long it takes to say that a cell is to be interrupted.
const cancelTime = 5 * time.Second

// add takes an event; over is set by the last one.
func (r *CodeResult) add(event []byte, over *bool, tell func(CodeEvent)) error {
	var m struct {
		Type, Text, Name, Value, Traceback string
		Count                              int `json:"execution_count"`
	}
	// Forms of a result may have the names of these fields, and other types.
	if err := json.Unmarshal(event, &m); err != nil && m.Type != "result" {
		return strange("an event of a cell that cannot be read: %v", err)
	}
	if tell == nil {
		tell = func(CodeEvent) {}
	}
	switch m.Type {
	case "number_of_executions":
		r.Count = m.Count
	case "stdout":
		r.Stdout += m.Text
		tell(CodeEvent{Kind: m.Type, Text: m.Text})
	case "stderr":
		r.Stderr += m.Text
		tell(CodeEvent{Kind: m.Type, Text: m.Text})
	case "error":
		r.Err = &CodeError{m.Name, m.Value, m.Traceback}
		tell(CodeEvent{Kind: m.Type, Err: r.Err})
	case "result":
		var v CodeValue
		if err := json.Unmarshal(event, &v); err != nil {
			return strange("a result of a cell that cannot be read: %v", err)
		}
		if v.Main {
			r.Text = v.Text
		}
		r.Values = append(r.Values, v)
		tell(CodeEvent{Kind: m.Type, Value: &v})
	case "end_of_execution":
		*over = true
	}
	return nil
}

// CodeContexts returns the contexts of a sandbox, first those for cells that name none.
func (s *Sandbox) CodeContexts(ctx context.Context) (all []CodeContext, err error) {
	c, err := s.Client(ctx)
	if err != nil {
		return nil, err
	}
	err = c.call(ctx, unary(c.cells.ListContexts, &tendv1.ListCodeContextsRequest{}, func(m *tendv1.ListCodeContextsResponse) error {
		all = mapped(m.GetContexts(), toCodeContext)
		return nil
	}))
	return all, knownCall(err, "is")
}

// CreateCodeContext makes a context; language "" is Python, dir "" the home of the sandbox's user. The call is not repeated
// if the answer is lost. If there are too many, the error is [process.ErrLimit].
func (s *Sandbox) CreateCodeContext(ctx context.Context, language, dir string) (made CodeContext, err error) {
	c, err := s.Client(ctx)
	if err != nil {
		return made, err
	}
	req := &tendv1.CreateCodeContextRequest{Language: language, Dir: dir}
	err = c.once(ctx, checked("context", c.cells.CreateContext, req, func(m *tendv1.CreateCodeContextResponse) error {
		made = toCodeContext(m.GetContext())
		return nil
	}))
	return made, knownCall(err, "is")
}

// RestartCodeContext ends the kernel of a context; its next cell begins afresh.
func (s *Sandbox) RestartCodeContext(ctx context.Context, id string) error {
	c, err := s.Client(ctx)
	if err != nil {
		return err
	}
	return knownCall(c.call(ctx, checked("context", c.cells.RestartContext, &tendv1.RestartCodeContextRequest{Context: id}, nil)), "is")
}

// RemoveCodeContext ends the kernel of a context, and forgets the context. It is no error if there is none.
func (s *Sandbox) RemoveCodeContext(ctx context.Context, id string) error {
	c, err := s.Client(ctx)
	if err != nil {
		return err
	}
	err = c.call(ctx, checked("context", c.cells.RemoveContext, &tendv1.RemoveCodeContextRequest{Context: id}, nil))
	if errors.Is(err, process.ErrNotFound) {
		return nil
	}
	return knownCall(err, "is")
}

func toCodeContext(m *tendv1.CodeContext) CodeContext {
	return CodeContext{tendpb.CleanName(m.GetId()), tendpb.CleanName(m.GetLanguage()), tendpb.CleanText(m.GetDir())}
}
