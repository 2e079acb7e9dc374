package tend

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tend-run/tend/process"
)

// Result is how a process ended, and what it said.
type Result struct {
	// Success: the exit code is 0.
	Success bool
	// ExitCode as a shell shows it: 128+n for signal n, 124 for a timeout, -1
	// if the end was not witnessed.
	ExitCode int
	// Stdout and Stderr hold the newest Cmd.MaxOutput bytes of each stream;
	// a terminal's output is Stdout. The dropped bytes are those before.
	Stdout, Stderr               string
	StdoutDropped, StderrDropped int64
	ExecutionTime                time.Duration
	// TimedOut: Cmd.Timeout ended it. Killed: a signal did, the timeout's
	// too.
	TimedOut, Killed bool
	// Exit has the rest: signal, cause, usage.
	Exit process.Exit
}

// WaitOptions of [Process.Wait].
type WaitOptions struct {
	// OnStdout and OnStderr are called with the output while Wait waits, from
	// the first byte that is kept, and never after it has returned.
	OnStdout, OnStderr func([]byte)
	// OnGap is called for bytes that retention freed before the callbacks got
	// them. Nil: Wait returns the first such gap behind what they got as a
	// [*process.GapError], with the whole result.
	OnGap func(process.Gap)
	// Drain is how long to go on after the exit while a descendant holds the
	// output open. What was written before the exit is always delivered.
	Drain time.Duration
}

// Wait waits for the end of the process and returns its result. It may be
// called at any time and any number of times. ctx ends the waiting only. The
// result comes with a [*process.GapError] if callbacks were to get bytes that
// retention had freed, and no OnGap took note of it.
func (p *Process) Wait(ctx context.Context, opts ...WaitOptions) (Result, error) {
	var o WaitOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	exit, streams, err := p.waitExit(ctx, o)
	missed, told := errors.AsType[*process.GapError](err)
	if err != nil && !told {
		return Result{}, err
	}
	if exit == nil {
		return Result{}, errors.New("the output ended without an exit status")
	}
	// Callbacks of the spawn have seen everything when Wait returns.
	select {
	case <-p.followed:
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	res := Result{
		ExitCode: exit.ShellStatus(), ExecutionTime: exit.Time.Sub(p.started), Exit: *exit,
		TimedOut: exit.Cause == process.CauseTimeout, Killed: exit.Signal != 0 || exit.Cause == process.CauseTimeout,
	}
	res.Success = res.ExitCode == 0 && !exit.Lost()
	text, err := p.tail(ctx, streams, process.ReadOptions{Drain: o.Drain})
	res.Stdout, res.StdoutDropped = text.Stdout, text.StdoutDropped
	res.Stderr, res.StderrDropped = text.Stderr, text.StderrDropped
	if missed == nil {
		missed = p.missed
	}
	if err == nil && missed != nil {
		err = missed
	}
	return res, err
}

// waitExit also returns what streams there were then, if it knows.
func (p *Process) waitExit(ctx context.Context, o WaitOptions) (*process.Exit, []process.StreamInfo, error) {
	if o.OnStdout != nil || o.OnStderr != nil {
		exit, err := p.deliver(ctx, process.ReadOptions{Drain: o.Drain}, callbacks{o.OnStdout, o.OnStderr, o.OnGap, true})
		return exit, nil, err
	}
	res, err := p.proc.Wait(ctx, process.Until{})
	return res.Exit, res.Streams, err
}

// callbacks are where output goes. late: what was freed before the first call
// is not missed.
type callbacks struct {
	stdout, stderr func([]byte)
	gap            func(process.Gap)
	late           bool
}

// deliver calls back with output until the reader ends, and returns the exit.
// The error is the first gap that nobody was called with, if all else went well.
func (p *Process) deliver(ctx context.Context, opts process.ReadOptions, to callbacks) (*process.Exit, error) {
	r, err := p.proc.Read(ctx, opts)
	if err != nil {
		return nil, err
	}
	var exit *process.Exit
	var missed error
	for ev, err := range process.Follow(ctx, r) {
		if err != nil {
			return exit, err
		}
		call := to.stdout
		if ev.Stream == process.Stderr {
			call = to.stderr
		}
		switch ev.Kind {
		case process.EventExited:
			exit = ev.Exit
		case process.EventGap:
			switch {
			case to.gap != nil:
				to.gap(ev.Gap)
			case call != nil && missed == nil && !(to.late && ev.Gap.From == 0):
				missed = &process.GapError{Gap: ev.Gap}
			}
		case process.EventOutput:
			if call != nil {
				call(ev.Data)
			}
		}
	}
	return exit, missed
}

// silent: nothing was ever said, and nothing can come any more.
func silent(streams []process.StreamInfo) bool {
	for _, s := range streams {
		if s.End > 0 || !s.EOF {
			return false
		}
	}
	return len(streams) > 0
}

// Text is the output of a process so far.
type Text struct {
	Stdout, Stderr               string
	StdoutDropped, StderrDropped int64 // bytes before
}

// Output returns what the process has said so far, the newest Cmd.MaxOutput
// bytes of each stream. A terminal's output is Stdout.
func (p *Process) Output(ctx context.Context) (Text, error) {
	return p.tail(ctx, nil, process.ReadOptions{NoFollow: true})
}

// tail reads the newest output. streams: as they were just now; nil: ask.
func (p *Process) tail(ctx context.Context, streams []process.StreamInfo, opts process.ReadOptions) (Text, error) {
	if streams == nil {
		info, err := p.proc.Info(ctx)
		if err != nil {
			return Text{}, err
		}
		streams = info.Streams
	}
	if silent(streams) {
		return Text{}, nil
	}
	var kept [4][]byte
	var dropped [4]int64
	for _, s := range streams {
		// After a drain there may be more than this; it is cut off below.
		opts.From[s.Stream] = max(s.Base, s.End-p.max)
		dropped[s.Stream] = opts.From[s.Stream]
	}
	opts.Unordered = true
	r, err := p.proc.Read(ctx, opts)
	if err != nil {
		return Text{}, err
	}
	for ev, err := range process.Follow(ctx, r) {
		if err != nil && !errors.Is(err, io.EOF) {
			return Text{}, err
		}
		switch at := ev.Stream; ev.Kind {
		case process.EventGap:
			at = ev.Gap.Stream
			kept[at], dropped[at] = nil, ev.Gap.To
		case process.EventOutput:
			kept[at] = append(kept[at], ev.Data...)
			if over := int64(len(kept[at])) - p.max; over > 0 {
				kept[at] = kept[at][over:]
				dropped[at] += over
			}
		}
	}
	out := process.Stdout
	if p.pty {
		out = process.PTY
	}
	return Text{
		Stdout: string(kept[out]), StdoutDropped: dropped[out],
		Stderr: string(kept[process.Stderr]), StderrDropped: dropped[process.Stderr],
	}, nil
}
