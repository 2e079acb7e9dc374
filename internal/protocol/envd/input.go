package envd

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/process"
)

// target is a live process that a request names.
type target struct {
	proc process.Process
	pid  int
	pty  bool
	sel  *pb.ProcessSelector
}

// find resolves a selector to a live process. A finished one is not found, as
// in the original.
func (f *Face) find(ctx context.Context, sel *pb.ProcessSelector) (*target, error) {
	p, info, err := f.resolve(ctx, sel)
	if err != nil {
		return nil, err
	}
	if info.Exit != nil {
		return nil, notFound(sel)
	}
	return &target{proc: p, pid: info.PID, pty: info.Spec.PTY != nil, sel: sel}, nil
}

// resolve finds the process that a selector names: the newest live one, or
// else the newest of all that are still known.
func (f *Face) resolve(ctx context.Context, sel *pb.ProcessSelector) (process.Process, process.Info, error) {
	var by process.Selector
	switch s := sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		by.PID = int(s.Pid)
	case *pb.ProcessSelector_Tag:
		by.Tag = s.Tag
	default:
		return nil, process.Info{}, errorf(connect.CodeUnimplemented, "invalid input type %T", sel)
	}
	if by.PID == 0 && by.Tag == "" {
		return nil, process.Info{}, notFound(sel) // pid 0, or the empty tag, which no process has
	}
	p, err := f.in(ctx).Processes().Get(ctx, by)
	if errors.Is(err, process.ErrNotFound) {
		return nil, process.Info{}, notFound(sel)
	}
	if err != nil {
		return nil, process.Info{}, wireErr(err)
	}
	ctx = process.Brief(ctx)
	info, err := p.Info(ctx)
	if errors.Is(err, process.ErrNotFound) {
		return nil, process.Info{}, notFound(sel)
	}
	if err != nil {
		return nil, process.Info{}, wireErr(err)
	}
	if info.Exit == nil || by.Tag == "" {
		return p, info, nil
	}
	// The newest holder of the tag has ended; an older one may still run.
	live, err := f.in(ctx).Processes().List(ctx, process.Filter{Live: true, Tag: by.Tag})
	if err != nil || len(live) == 0 {
		return p, info, nil
	}
	newest := live[len(live)-1]
	if q, err := f.in(ctx).Processes().Get(ctx, process.Selector{ID: newest.ID}); err == nil {
		return q, newest, nil
	}
	return p, info, nil
}

func notFound(sel *pb.ProcessSelector) *connect.Error {
	if t, ok := sel.GetSelector().(*pb.ProcessSelector_Tag); ok {
		return errorf(connect.CodeNotFound, "process with tag %s not found", clipped(t.Tag))
	}
	return errorf(connect.CodeNotFound, "process with pid %d not found", sel.GetPid())
}

// wireErr words an error of an operation on the target. A process that ended
// meanwhile is not found any more.
func (t *target) wireErr(doing string, err error) error {
	if errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrNotFound) {
		return notFound(t.sel)
	}
	return errorf(codeOf(err), "%s: %w", doing, err)
}

func (f *Face) sendInput(ctx context.Context, req *pb.SendInputRequest) error {
	sel, in := req.GetProcess(), req.GetInput()
	if t := f.fedBefore(ctx, sel); t != nil && t.takes(in) {
		err := t.input(ctx, in)
		if err == nil {
			return nil
		}
		// That it has ended comes before any other reason.
		if _, ended := f.find(ctx, sel); ended != nil {
			return ended
		}
		return err
	}
	t, err := f.find(ctx, sel)
	if err != nil {
		return err
	}
	f.rememberFed(t)
	return t.input(ctx, in)
}

// inputTarget is where the messages of one StreamInput go.
type inputTarget struct{ *target }

// streamInput applies one message. Data before the first start is refused;
// the original panics there.
func (f *Face) streamInput(ctx context.Context, to *inputTarget, msg *pb.StreamInputRequest) error {
	switch ev := msg.GetEvent().(type) {
	case *pb.StreamInputRequest_Start:
		t, err := f.find(ctx, ev.Start.GetProcess())
		if err != nil {
			return err
		}
		to.target = t
		return nil
	case *pb.StreamInputRequest_Data:
		if to.target == nil {
			return errorf(connect.CodeInvalidArgument, "data came before a start event; the first message must name the process")
		}
		return to.input(ctx, ev.Data.GetInput())
	case *pb.StreamInputRequest_Keepalive:
		return nil
	default:
		return errorf(connect.CodeUnimplemented, "invalid event type %T", ev)
	}
}

// input feeds stdin or the terminal. While the pipe is full only this call
// waits: other writers, and CloseStdin, do not queue behind it here.
func (t *target) input(ctx context.Context, in *pb.ProcessInput) error {
	var data []byte
	doing := "error writing to stdin"
	switch in := in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if t.pty {
			return errorf(connect.CodeInternal,
				"error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin")
		}
		data = in.Stdin
	case *pb.ProcessInput_Pty:
		if !t.pty {
			return errorf(connect.CodeInternal,
				"error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty")
		}
		data, doing = in.Pty, "error writing to tty"
	default:
		return errorf(connect.CodeUnimplemented, "invalid input type %T", in)
	}
	_, err := t.proc.Write(ctx, process.Input{Data: data})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, process.ErrBrokenPipe) && t.pty: // the original's words, and below
		return errorf(connect.CodeInternal, "error writing to tty: error writing to tty of process '%d': write /dev/ptmx: input/output error",
			t.pid)
	case errors.Is(err, process.ErrBrokenPipe):
		return errorf(connect.CodeInternal, "error writing to stdin: error writing to stdin of process '%d': write |1: broken pipe", t.pid)
	case errors.Is(err, process.ErrStdinClosed):
		return errorf(connect.CodeInternal, "error writing to stdin: stdin not enabled or closed")
	}
	return t.wireErr(doing, err)
}
