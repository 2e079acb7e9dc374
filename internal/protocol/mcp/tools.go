package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

const instructions = "Runs programs that outlive the call: a run whose timeout_s is over goes on, and its id finds it. " +
	"Answers are cut to max_tokens; what is left out is named by byte offset, for the tool output. " +
	"For a REPL or prompts: run with stdin tty, then input. For a server: run with port."

// newServer makes the tools. scoped: for a client that works in one sandbox. listen: for
// one that can be told of changes.
func (f *Face) newServer(scoped, listen bool) *sdk.Server {
	opts := &sdk.ServerOptions{
		Instructions: instructions,
		// Neither the tools nor the list of resources change.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{Subscribe: listen}},
	}
	s := &tools{arguments: map[string]string{}}
	if listen {
		opts.SubscribeHandler = func(ctx context.Context, r *sdk.SubscribeRequest) error {
			return f.watch.add(ctx, s.Server, r.Params.URI)
		}
		opts.UnsubscribeHandler = func(_ context.Context, r *sdk.UnsubscribeRequest) error {
			f.watch.remove(s.Server, r.Params.URI)
			return nil
		}
	}
	s.Server = sdk.NewServer(&sdk.Implementation{Name: "tend", Title: "tend", Version: orDev(f.cfg.Version)}, opts)
	s.AddReceivingMiddleware(f.guarded, s.named)
	add(f, s, scoped, "run",
		"Run a command. Waits until it exits, or for match, port, quiet_ms or for_input. Answers status and output; if it runs on, its id.",
		f.run)
	add(f, s, scoped, "output", "Show a process's output, running or not: from an offset, the tail, or lines that match.", f.output)
	add(f, s, scoped, "input",
		"Write to a process's stdin or terminal, then wait as run does; default: until it reads input again. Answers the output since.", f.input)
	add(f, s, scoped, "wait", "Wait for a process; default: until it exits. Answers the tail of its output.", f.wait)
	add(f, s, scoped, "stop", "End a process and all its descendants, or signal it.", f.stop)
	add(f, s, scoped, "list", "List processes.", f.list)
	add(f, s, scoped, "read_file", "Read lines of a text file.", f.readFile)
	add(f, s, scoped, "write_file", "Write a whole file; makes its directories.", f.writeFile)
	add(f, s, scoped, "edit_file", "Replace exact text in a file.", f.editFile)
	add(f, s, scoped, "find_files", "List a directory, find paths by glob, or lines by text.", f.findFiles)
	if !scoped && f.cfg.Driver != nil {
		add(f, s, scoped, "sandbox", "Isolated places with files and processes of their own. Work in one by giving sandbox to the other tools.",
			f.sandbox)
	}
	if f.cfg.Code != nil {
		add(f, s, scoped, "run_code", "Run code as a notebook's cell does, in a sandbox from the template "+interpreter.Template+
			". Variables stay for the next call. Answers output, the last value and plots.", f.runCode)
	}
	if !scoped && f.cfg.Services != nil {
		add(f, s, scoped, "service", "Services that are kept running (tend.yaml).", f.service)
	}
	f.addResources(s.Server)
	return s.Server
}

// tools are a server of the SDK, with the arguments that its tools have.
type tools struct {
	*sdk.Server
	arguments map[string]string // by tool, as a text
}

// named adds to the refusal of an argument that a tool does not have, which ones it has.
func (s *tools) named(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		call, ok := req.(*sdk.CallToolRequest)
		if got, is := res.(*sdk.CallToolResult); ok && is && got != nil && got.IsError && len(got.Content) == 1 {
			if text, ok := got.Content[0].(*sdk.TextContent); ok && strings.Contains(text.Text, "unexpected additional properties") {
				text.Text += "; " + call.Params.Name + " has " + s.arguments[call.Params.Name]
			}
		}
		return res, err
	}
}

func orDev(version string) string {
	if version == "" {
		return "dev"
	}
	return version
}

// readers are the tools that change nothing.
var readers = map[string]bool{"output": true, "wait": true, "list": true, "read_file": true, "find_files": true}

// add makes a tool of a method.
func add[A any](f *Face, s *tools, scoped bool, name, description string, do func(context.Context, *sdk.CallToolRequest,
	*call, A) (*answer, error)) {
	schema, err := jsonschema.For[A](nil)
	if err != nil { // the types are ours
		panic(err)
	}
	if scoped {
		delete(schema.Properties, "sandbox")
	}
	for _, p := range schema.Properties { // null is for nobody
		if len(p.Types) == 2 && p.Types[0] == "null" {
			p.Type, p.Types = p.Types[1], nil
		}
	}
	schema.PropertyOrder = nil
	tool := &sdk.Tool{Name: name, Description: description, InputSchema: schema}
	if readers[name] {
		tool.Annotations = &sdk.ToolAnnotations{ReadOnlyHint: true}
	}
	s.arguments[name] = strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", ")
	sdk.AddTool(s.Server, tool, func(ctx context.Context, req *sdk.CallToolRequest, args A) (*sdk.CallToolResult, any, error) {
		c := callOf(ctx)
		ctx, done := c.context(ctx)
		defer done()
		ctx, end := f.cfg.Trace.Begin(ctx, "tools/call "+name, func(key string) string {
			text, _ := req.Params.Meta[key].(string)
			return text
		})
		failed := true // until it is known that it has not, also by a panic
		defer func() { end(failed) }()
		c.prime()
		c.decoded()
		got, err := do(ctx, req, c, args)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		if errors.Is(err, errStopping) {
			c.mute()
		}
		if err != nil {
			return nil, nil, told(err)
		}
		failed = false
		return got.result(), nil, nil
	})
}

// told is an error as a model is told it.
func told(err error) error {
	for _, known := range []struct {
		err  error
		hint string
	}{
		{driver.ErrStopped, "the tool sandbox starts it"},
		{process.ErrStdinClosed, "run it with stdin pipe or tty to write to it"},
	} {
		if errors.Is(err, known.err) {
			return fmt.Errorf("%w; %s", err, known.hint)
		}
	}
	return err
}

// guarded keeps what is wrong with one call from ending the server.
func (f *Face) guarded(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				f.cfg.Log.Error("a call hit a fault of the server", "method", method, "panic", v, "stack", string(debug.Stack()))
				res, err = nil, errors.New(method+" hit a fault of the server; this call ended, nothing else did")
			}
		}()
		return next(ctx, method, req)
	}
}
