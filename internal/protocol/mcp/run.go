package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

type runArgs struct {
	Command string            `json:"command,omitempty" jsonschema:"shell line"`
	Argv    []string          `json:"argv,omitempty" jsonschema:"or program and arguments, without a shell"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Name    string            `json:"name,omitempty" jsonschema:"to find it by"`
	Stdin   string            `json:"stdin,omitempty" jsonschema:"none (default), pipe or tty; pipe and tty stay open for the tool input"`
	Input   string            `json:"input,omitempty" jsonschema:"text for stdin, then its end; with pipe or tty it stays open"`
	KillS   float64           `json:"kill_after_s,omitempty" jsonschema:"kill it after this. Default: never"`
	until
	inSandbox
}

func (f *Face) run(ctx context.Context, req *sdk.CallToolRequest, c *call, a runArgs) (*answer, error) {
	var n notes
	at, err := f.placeOf(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	cond, err := a.condition([4]int64{})
	if err != nil {
		return nil, err
	}
	spec, err := a.spec(c, at)
	if err != nil {
		return nil, err
	}
	open := spec.Stdin == process.StdinPipe && a.Stdin != "" || spec.PTY != nil
	wait := a.patience(&n)
	tokens := allowance(&n, a.Tokens)
	if open && cond == (process.Until{}) {
		cond.Input = true // else it would wait for an exit that needs us
	}
	if c.unwanted.Load() || errors.Is(context.Cause(ctx), errCancelled) {
		return nil, f.broken(ctx, errCancelled, at, c)
	}
	// A client that left has cancelled nothing: it may have its answer's beginning. And a
	// start that is left may happen after the kill has looked for it.
	p, err := retried(context.WithoutCancel(ctx),
		func(ctx context.Context) (process.Process, error) {
			return at.access.Processes().Start(ctx, spec)
		})
	if ended := context.Cause(ctx); ended != nil && (err == nil || ctx.Err() != nil) {
		return nil, f.broken(ctx, ended, at, c)
	}
	if err != nil {
		return nil, err
	}
	info, err := retried(ctx, p.Info)
	if err != nil {
		return nil, f.unless(ctx, err, at, c)
	}
	// A call that is made again has no more time than the first one.
	deadline := info.Started.Add(wait)
	if a.Input != "" {
		giving, stop := context.WithDeadline(ctx, deadline)
		err := give(giving, p, c, []byte(a.Input), !open)
		stop()
		switch {
		case err == nil, errors.Is(err, process.ErrStdinClosed), errors.Is(err, process.ErrExited):
		case ctx.Err() != nil:
			return nil, f.broken(ctx, context.Cause(ctx), at, c)
		case errors.Is(err, context.DeadlineExceeded):
			n.add("It has not read all of its input.")
		default:
			return nil, err
		}
	}
	out, err := await(ctx, req, c, p, cond, deadline)
	if err != nil {
		return nil, f.unless(ctx, err, at, c)
	}
	return f.report(ctx, p, &out, cond, [4]int64{}, share, n, tokens)
}

// spec is what the arguments ask to start.
func (a *runArgs) spec(c *call, at *place) (s process.Spec, err error) {
	s = process.Spec{ID: c.process(), Name: a.Name, Argv: a.Argv, Shell: a.Command, Env: maps.Clone(a.Env), Dir: a.Cwd, User: a.User}
	if s.Dir == "" {
		s.Dir = at.dir
	} else if !strings.HasPrefix(s.Dir, "/") {
		if at.dir == "" {
			return s, &process.InvalidError{Field: "cwd", Reason: fmt.Sprintf("%.200q is not absolute", a.Cwd)}
		}
		s.Dir = at.dir + "/" + s.Dir
	}
	if at.path != "" && a.User == "" {
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		if _, set := s.Env["PATH"]; !set {
			s.Env["PATH"] = at.path
		}
	}
	if c.label != "" {
		s.Labels = map[string]string{labelCall: c.label}
	}
	switch a.Stdin {
	case "", "none":
		if a.Input != "" {
			s.Stdin = process.StdinPipe
		}
	case "pipe":
		s.Stdin = process.StdinPipe
	case "tty":
		s.PTY = &process.Size{Cols: 120, Rows: 40}
		if _, set := s.Env["TERM"]; !set {
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			s.Env["TERM"] = "xterm-256color"
		}
	default:
		return s, &process.InvalidError{Field: "stdin", Reason: fmt.Sprintf("is %.40q; none, pipe or tty are allowed", a.Stdin)}
	}
	if a.Stdin == "none" && a.Input != "" {
		return s, &process.InvalidError{Field: "stdin", Reason: "is none, and input is given; leave out one"}
	}
	if len(a.Input) > process.MaxWhole {
		return s, &process.InvalidError{Field: "input", Reason: fmt.Sprintf("has %d bytes; the limit is %d: write a file, and redirect it",
			len(a.Input), process.MaxWhole)}
	}
	if most := process.MaxTimeout.Seconds(); !(a.KillS >= 0 && a.KillS <= most) {
		return s, &process.InvalidError{Field: "kill_after_s", Reason: fmt.Sprintf("is %g; 0 to %g are allowed", a.KillS, math.Floor(most))}
	}
	s.Timeout = time.Duration(a.KillS * float64(time.Second))
	return s, s.Validate()
}

// unless is err, or why the call was broken off.
func (f *Face) unless(ctx context.Context, err error, at *place, c *call) error {
	if ctx.Err() == nil {
		return err
	}
	return f.broken(ctx, context.Cause(ctx), at, c)
}

// broken ends a run that was broken off: what a cancelled one has started is killed, with
// its tree.
func (f *Face) broken(ctx context.Context, why error, at *place, c *call) error {
	// Clients that cancel often close the connection first.
	if errors.Is(why, errCancelled) || c.unwanted.Load() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer stop()
		p, err := retried(ctx, func(ctx context.Context) (process.Process, error) {
			return at.access.Processes().Get(ctx, process.Selector{ID: c.process()})
		})
		if err == nil {
			_, err = retried(ctx, p.Kill)
		}
		if err != nil && !errors.Is(err, process.ErrNotFound) && !errors.Is(err, process.ErrExited) {
			f.cfg.Log.Warn("a cancelled run was not killed", "id", c.process(), "error", err)
		}
	}
	return why
}

// give writes input once, however often the call is made.
func give(ctx context.Context, p process.Process, c *call, data []byte, last bool) error {
	_, err := retried(ctx, func(ctx context.Context) (process.Accepted, error) {
		at := int64(0)
		return p.Write(ctx, process.Input{Data: data, Writer: c.writer(), Offset: &at, EOF: last, Again: c.again})
	})
	return err
}
