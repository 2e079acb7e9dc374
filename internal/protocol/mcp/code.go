package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

type codeArgs struct {
	Code     string  `json:"code"`
	Language string  `json:"language,omitempty" jsonschema:"python (default), javascript, typescript, bash; r, java and others if their Jupyter kernel is installed there"`
	TimeoutS float64 `json:"timeout_s,omitempty" jsonschema:"interrupt it after this. Default 30"`
	Tokens   int     `json:"max_tokens,omitempty"`
	inSandbox
}

// Bounds of what an answer has of a cell.
const (
	maxCode     = 1 << 20
	maxCellText = 1 << 20
	maxImages   = 4
	maxImage    = 2 << 20 // bytes of one as base64
)

// runCode runs a cell in the context of its language for cells that name none. A call that is made again finds the cell.
func (f *Face) runCode(ctx context.Context, _ *sdk.CallToolRequest, c *call, a codeArgs) (*answer, error) {
	var n notes
	at, err := f.placeOf(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	if len(a.Code) > maxCode {
		return nil, &process.InvalidError{Field: "code", Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(a.Code), maxCode)}
	}
	sandbox := interpreter.Sandbox{ID: string(at.sandbox), Access: at.access}
	if at.sandbox == "" || !f.cfg.Code.Serves(sandbox) {
		return nil, errors.New("there is no code interpreter in this place; the tool sandbox creates one from the template " + interpreter.Template)
	}
	wait := (&until{TimeoutS: a.TimeoutS}).patience(&n)
	tokens := allowance(&n, a.Tokens)
	e, err := f.cfg.Code.Run(ctx, sandbox, interpreter.Cell{ID: c.name("cell", 26), Again: c.again, Code: a.Code, Language: a.Language})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	waiting, stop := context.WithTimeout(ctx, wait)
	defer stop()
	out := cellOutput{facts: map[string]any{"execution": e.ID}}
	for {
		event, err := e.Next(waiting)
		switch {
		case errors.Is(err, io.EOF):
			return out.answer(n, tokens), nil
		case errors.Is(context.Cause(ctx), errStopping): // it runs on, and the call is made again
			return nil, errStopping
		case ctx.Err() != nil: // nobody waits for it
			return nil, errors.Join(context.Cause(ctx), e.Cancel(context.WithoutCancel(ctx)))
		case errors.Is(err, context.DeadlineExceeded):
			if err := e.Cancel(ctx); err != nil {
				return nil, err
			}
			n.add("It was interrupted after %g s; its variables are kept.", wait.Seconds())
			waiting, stop = context.WithTimeout(ctx, time.Minute) // kernels end a cell within ten seconds
			defer stop()
		case errors.Is(err, driver.ErrNotFound):
			return nil, errors.New("the sandbox has ended, and the cell with it")
		case err != nil:
			return nil, err
		default:
			out.add(event)
		}
	}
}

// cellOutput is what a model is shown of a cell.
type cellOutput struct {
	text    strings.Builder
	left    int // bytes of text that are left out
	images  []sdk.Content
	ignored int // images
	facts   map[string]any
}

func (o *cellOutput) say(text string) {
	n := min(len(text), max(0, maxCellText-o.text.Len()))
	o.text.WriteString(text[:n])
	o.left += len(text) - n
}

func (o *cellOutput) add(event []byte) {
	var e struct {
		Type, Text, Name, Value, Traceback, Markdown, HTML, PNG, JPEG string
	}
	if err := json.Unmarshal(event, &e); err != nil { // of a kernel that somebody has changed
		return
	}
	switch e.Type {
	case "stdout", "stderr":
		o.say(e.Text)
	case "error":
		o.facts["error"] = e.Name
		if e.Traceback == "" {
			e.Traceback = e.Value
		}
		if !strings.Contains(e.Traceback, e.Name) {
			e.Traceback = e.Name + ": " + e.Traceback
		}
		o.say(e.Traceback + "\n")
	case "result":
		for kind, data := range map[string]string{"image/png": e.PNG, "image/jpeg": e.JPEG} {
			if data == "" {
				continue
			}
			raw, err := base64.StdEncoding.DecodeString(data)
			if err != nil || len(data) > maxImage || len(o.images) == maxImages {
				o.ignored++
				continue
			}
			o.images = append(o.images, &sdk.ImageContent{Data: raw, MIMEType: kind})
		}
		switch {
		case e.Text != "":
			o.say(e.Text + "\n")
		case e.Markdown != "":
			o.say(e.Markdown + "\n")
		case e.HTML != "":
			o.say(e.HTML + "\n")
		}
	}
}

func (o *cellOutput) answer(n notes, tokens int) *answer {
	text := o.text.String()
	if text == "" {
		text = "(no output)\n"
	}
	shown := cutTo(text, 3*tokens)
	if left := len(text) - len(shown) + o.left; left > 0 {
		n.add("%d bytes of output are left out; print less, or write it to a file.", left)
	}
	if o.ignored > 0 {
		n.add("%d images are left out: %d of at most %d KiB are shown.", o.ignored, maxImages, maxImage>>10)
	}
	for _, note := range n {
		shown = strings.TrimSuffix(shown, "\n") + "\n[" + note + "]"
	}
	return &answer{shown, o.facts, o.images}
}
