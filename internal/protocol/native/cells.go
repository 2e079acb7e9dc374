package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// cells implements the CodeService.
type cells struct {
	code      *interpreter.Service // nil: not supported
	driver    driver.Driver
	heartbeat time.Duration
	stopping  <-chan struct{} // closed when the server is about to end
}

// sandbox is the sandbox that a call is for.
func (c *cells) sandbox(ctx context.Context) (sandbox interpreter.Sandbox, err error) {
	if c.code == nil {
		return sandbox, unsupported("cells of code")
	}
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return sandbox, errors.New("a call without its headers")
	}
	keys := call.RequestHeader().Values(tendpb.SandboxHeader)
	if len(keys) != 1 {
		return sandbox, &process.InvalidError{Field: tendpb.SandboxHeader, Reason: fmt.Sprintf("comes %d times; name one sandbox", len(keys))}
	}
	s, err := find(ctx, c.driver, keys[0])
	if err != nil {
		return sandbox, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return sandbox, err
	}
	switch info.State {
	case driver.Stopped:
		return sandbox, driver.ErrStopped
	case driver.Paused:
		return sandbox, driver.ErrPaused
	}
	sandbox = interpreter.Sandbox{ID: string(info.ID), Access: s}
	if !c.code.Serves(sandbox) {
		return sandbox, errtext.New("this sandbox has no kernels; create one from the template "+interpreter.Template, process.ErrUnsupported)
	}
	return sandbox, nil
}

// cellError is wireError for the errors of package interpreter, too.
func cellError(err error) error {
	switch {
	case errors.Is(err, interpreter.ErrNoExecution):
		err = errtext.New(err.Error(), process.ErrNotFound)
	default:
		if e, ok := errors.AsType[*interpreter.ContextError](err); ok {
			err = errtext.New(e.Error(), process.ErrNotFound)
		} else if e, ok := errors.AsType[*interpreter.LanguageError](err); ok {
			err = &process.InvalidError{Field: "language", Reason: fmt.Sprintf("is %.100q; %s", e.Language, e.Why)}
		} else if e, ok := errors.AsType[*interpreter.DirError](err); ok {
			err = &process.InvalidError{Field: "dir", Reason: fmt.Sprintf("%.200q: %v", e.Dir, e.Err)}
		} else if e, ok := errors.AsType[*interpreter.LimitError](err); ok {
			err = errtext.New(e.Error(), process.ErrLimit)
		}
	}
	return wireError(err)
}

// cellAnswer is answer for calls about cells.
func cellAnswer[M any](m *M, err error) (*connect.Response[M], error) {
	if err != nil {
		return nil, cellError(err)
	}
	return connect.NewResponse(m), nil
}

func codeContext(c interpreter.Context) *tendv1.CodeContext {
	return &tendv1.CodeContext{Id: c.ID, Language: c.Language, Dir: c.Dir}
}

func (c *cells) ListContexts(ctx context.Context,
	_ *connect.Request[tendv1.ListCodeContextsRequest]) (*connect.Response[tendv1.ListCodeContextsResponse], error) {
	sandbox, err := c.sandbox(ctx)
	if err != nil {
		return nil, cellError(err)
	}
	all, err := c.code.Contexts(ctx, sandbox)
	out := &tendv1.ListCodeContextsResponse{}
	for _, one := range all {
		out.Contexts = append(out.Contexts, codeContext(one))
	}
	return cellAnswer(out, err)
}

func (c *cells) CreateContext(ctx context.Context,
	req *connect.Request[tendv1.CreateCodeContextRequest]) (*connect.Response[tendv1.CreateCodeContextResponse], error) {
	sandbox, err := c.sandbox(ctx)
	if err != nil {
		return nil, cellError(err)
	}
	dir := req.Msg.GetDir()
	if dir != "" && (dir[0] != '/' || strings.ContainsRune(dir, 0)) {
		return nil, cellError(&process.InvalidError{Field: "dir", Reason: fmt.Sprintf("is %.200q; an absolute path is needed", dir)})
	}
	made, err := c.code.Create(context.WithoutCancel(ctx), sandbox, req.Msg.GetLanguage(), dir)
	return cellAnswer(&tendv1.CreateCodeContextResponse{Context: codeContext(made)}, err)
}

func (c *cells) RestartContext(ctx context.Context,
	req *connect.Request[tendv1.RestartCodeContextRequest]) (*connect.Response[tendv1.RestartCodeContextResponse], error) {
	sandbox, err := c.sandbox(ctx)
	if err == nil {
		err = c.code.Restart(context.WithoutCancel(ctx), sandbox, req.Msg.GetContext())
	}
	return cellAnswer(&tendv1.RestartCodeContextResponse{}, err)
}

func (c *cells) RemoveContext(ctx context.Context,
	req *connect.Request[tendv1.RemoveCodeContextRequest]) (*connect.Response[tendv1.RemoveCodeContextResponse], error) {
	sandbox, err := c.sandbox(ctx)
	if err == nil {
		err = c.code.Remove(context.WithoutCancel(ctx), sandbox, req.Msg.GetContext())
	}
	return cellAnswer(&tendv1.RemoveCodeContextResponse{}, err)
}

func (c *cells) CancelCell(ctx context.Context,
	req *connect.Request[tendv1.CancelCellRequest]) (*connect.Response[tendv1.CancelCellResponse], error) {
	sandbox, err := c.sandbox(ctx)
	if err == nil {
		err = c.code.Cancel(ctx, sandbox, req.Msg.GetExecution())
	}
	return cellAnswer(&tendv1.CancelCellResponse{}, err)
}

// A kernel's input has a writer of the cell's name, and another to cancel it; names of writers have at most 32 bytes.
const minCellName, maxCellName = 16, 30

func checkCell(m *tendv1.RunCellRequest) error {
	name := m.GetCell()
	switch {
	case len(name) < minCellName || len(name) > maxCellName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return &process.InvalidError{Field: "cell", Reason: fmt.Sprintf("is %.80q; %d to %d lower-case letters and digits are needed",
			name, minCellName, maxCellName)}
	case m.GetContext() != "" && m.GetLanguage() != "":
		return &process.InvalidError{Field: "language", Reason: "is given with a context, which has its own; give one of the two"}
	case m.GetFrom() < 0:
		return &process.InvalidError{Field: "from", Reason: fmt.Sprintf("is %d; it counts events from 0", m.GetFrom())}
	}
	return driver.CheckEnv("env", m.GetEnv())
}

func (c *cells) RunCell(ctx context.Context, req *connect.Request[tendv1.RunCellRequest],
	stream *connect.ServerStream[tendv1.RunCellResponse]) error {
	m := req.Msg
	sandbox, err := c.sandbox(ctx)
	if err == nil {
		err = checkCell(m)
	}
	if err != nil {
		return cellError(err)
	}
	e, err := c.code.Run(ctx, sandbox, interpreter.Cell{Code: m.GetCode(), ID: m.GetCell(), Again: m.GetAgain(),
		Context: m.GetContext(), Language: m.GetLanguage(), Env: m.GetEnv()})
	if err != nil {
		return cellError(err)
	}
	defer e.Close()
	if err := stream.Send(&tendv1.RunCellResponse{Execution: e.ID}); err != nil {
		return err
	}
	skip := m.GetFrom()
	return c.events(ctx, e, func(event []byte) error {
		switch {
		case event == nil:
			return stream.Send(&tendv1.RunCellResponse{Heartbeat: true})
		case skip > 0:
			skip--
			return nil
		}
		return stream.Send(&tendv1.RunCellResponse{Event: event})
	}, func() error { return stream.Send(&tendv1.RunCellResponse{GoingAway: true}) })
}

func (c *cells) FollowContext(ctx context.Context, req *connect.Request[tendv1.FollowCodeContextRequest],
	stream *connect.ServerStream[tendv1.FollowCodeContextResponse]) error {
	sandbox, err := c.sandbox(ctx)
	if err != nil {
		return cellError(err)
	}
	e, err := c.code.Watch(ctx, sandbox, req.Msg.GetContext())
	if errors.Is(err, interpreter.ErrNoExecution) {
		return nil
	}
	if err != nil {
		return cellError(err)
	}
	defer e.Close()
	return c.events(ctx, e, func(line []byte) error {
		if line == nil {
			return stream.Send(&tendv1.FollowCodeContextResponse{Heartbeat: true})
		}
		cell, event, _ := bytes.Cut(line, []byte(" "))
		return stream.Send(&tendv1.FollowCodeContextResponse{Cell: string(cell), Event: event})
	}, func() error { return stream.Send(&tendv1.FollowCodeContextResponse{GoingAway: true}) })
}

// events calls send with each event, and with nil after each heartbeat of silence; with away when the server is about to end.
func (c *cells) events(ctx context.Context, e *interpreter.Execution, send func([]byte) error, away func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	for {
		waiting, done := context.WithTimeout(ctx, c.heartbeat)
		event, err := e.Next(waiting)
		done()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(context.Cause(ctx), errStopping):
			return away()
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			event = nil
		case err != nil:
			return cellError(err)
		}
		if err := send(event); err != nil {
			return err
		}
	}
}
