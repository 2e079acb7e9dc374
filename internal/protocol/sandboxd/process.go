package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
	pb "github.com/tend-run/tend/internal/gen/sandboxd/process"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

// tagPrefix begins the tag of a process; its number follows, if it has one.
const tagPrefix = "sandboxd-"

func tagOf(number int32) string { return tagPrefix + strconv.Itoa(int(number)) }

// running is a process whose stream is open here.
type running struct {
	process.Process
	pty bool
}

// next returns the number of the next process. It is greater than that of each one that the daemon knows,
// those of former servers too.
func (f *Face) next(ctx context.Context) (int32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.counted {
		all, err := f.cfg.Machine.Processes().List(ctx, process.Filter{})
		if err != nil {
			return 0, err
		}
		for i := range all {
			text, _ := strings.CutPrefix(all[i].Spec.Tag, tagPrefix)
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				f.last = max(f.last, int32(n))
			}
		}
		f.counted = true
	}
	f.last = max(f.last+1, 1)
	return f.last, nil
}

// find returns a process whose stream is open, or that runs without one.
func (f *Face) find(ctx context.Context, number int32) (running, error) {
	f.mu.Lock()
	p, ok := f.open[number]
	f.mu.Unlock()
	if ok {
		return p, nil
	}
	found, err := f.cfg.Machine.Processes().Get(ctx, process.Selector{Tag: tagOf(number)})
	if err == nil {
		var info process.Info
		if info, err = found.Info(process.Brief(ctx)); err == nil && info.Exit == nil {
			return running{found, info.Spec.PTY != nil}, nil
		}
	}
	if err == nil || errors.Is(err, process.ErrNotFound) {
		err = connect.NewError(connect.CodeNotFound, fmt.Errorf("process %d is not found: it has ended, or there was none", number))
	}
	return running{}, err
}

// begin starts a process, which goes on when ctx ends.
func (f *Face) begin(ctx context.Context, config *pb.ProcessConfig, spec process.Spec) (process.Process, error) {
	spec.Argv, spec.Env, spec.Inherit = config.GetCommand(), config.GetEnvVars(), process.InheritDaemon
	if len(spec.Argv) == 0 {
		return nil, &process.InvalidError{Field: "config.command", Reason: "is empty; name a program"}
	}
	dir, err := f.place(config.GetCwd())
	if err == nil {
		err = f.fs().Do(ctx, func(a *files.Actor) error {
			dir, err = a.Real(dir)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cwd: %w", err)
	}
	spec.Dir = dir
	budget.Of(ctx).Release()
	return f.cfg.Machine.Processes().Start(context.WithoutCancel(ctx), spec)
}

// killTime bounds how long a kill may take whose caller has left.
const killTime = 30 * time.Second

// abandoned ends a process whose client has left, with its tree. A server that stops leaves it alone.
func (f *Face) abandoned(ctx context.Context, p process.Process) {
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), errStopping) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if _, err := p.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrNotFound) {
		f.cfg.Log.Warn("kill a process whose client has left", "id", p.ID(), "err", err)
	}
}

// errStopping is why streams end when the server does.
var errStopping = errors.New("the server is stopping; what it has started goes on, or is ended with the daemon")

// joined ends with ctx, or with errStopping when the server stops.
func (f *Face) joined(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(f.ctx, func() { cancel(errStopping) })
	f.streams.Add(1)
	return ctx, func() {
		stop()
		cancel(nil)
		f.streams.Add(-1)
	}
}

// wireErr is the one table from the errors of the domain to those of gRPC.
func wireErr(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](err); ok {
		return err
	}
	return connect.NewError(codeOf(err), err)
}

func codeOf(err error) connect.Code {
	if _, ok := errors.AsType[*process.InvalidError](err); ok {
		return connect.CodeInvalidArgument
	}
	if _, ok := errors.AsType[*budget.BusyError](err); ok {
		return connect.CodeResourceExhausted
	}
	if start, ok := errors.AsType[*process.StartError](err); ok {
		switch {
		case start.Reason == process.StartNotFound, errors.Is(err, fs.ErrNotExist):
			return connect.CodeNotFound
		case start.Reason == process.StartPermission, errors.Is(err, fs.ErrPermission):
			return connect.CodePermissionDenied
		case start.Reason == process.StartTooLong:
			return connect.CodeInvalidArgument
		case start.Reason == process.StartResources:
			return connect.CodeResourceExhausted
		}
		return connect.CodeInternal
	}
	for _, known := range [...]struct {
		err  error
		code connect.Code
	}{
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded}, {context.Canceled, connect.CodeCanceled},
		{errStopping, connect.CodeUnavailable}, {process.ErrUnavailable, connect.CodeUnavailable},
		{files.ErrNotExist, connect.CodeNotFound}, {files.ErrNotDir, connect.CodeNotFound},
		{files.ErrOutside, connect.CodePermissionDenied}, {files.ErrPermission, connect.CodePermissionDenied},
		{process.ErrPermission, connect.CodePermissionDenied},
		{process.ErrNoPTY, connect.CodeFailedPrecondition}, {process.ErrLimit, connect.CodeResourceExhausted},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return connect.CodeInternal
}
