package tend

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tend-run/tend/process"
)

// Result says how a process ended, and holds its output.
type Result struct {
	// Success: the exit code is 0.
	Success bool
	// ExitCode as a shell shows it: 128+n for signal n, 124 for a timeout, -1 if the end
	// was not observed.
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

// WaitOptions of [Process.Wait]. The zero value is what most callers want.
type WaitOptions struct {
	// Drain is how long to continue after the exit while a descendant holds the output
	// open; negative: as long as it does. Output written before the exit is always
	// delivered.
	Drain time.Duration
}

// Wait waits for the end of the process and returns its result. It may be
// called at any time and any number of times. ctx ends the waiting only.
//
// The whole result comes with an error if something was lost on its way to or
// from the Cmd: that of a reader or writer that failed, or the
// [*process.GapError] of bytes that retention had freed.
func (p *Process) Wait(ctx context.Context, opts WaitOptions) (Result, error) {
	ended, err := p.proc.Wait(ctx, process.Until{})
	if err != nil {
		return Result{}, err
	}
	exit := ended.Exit
	if exit == nil {
		return Result{}, errors.New("the output ended without an exit status")
	}
	lost := p.copies.finish(ctx, opts.Drain)
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	res := Result{
		ExitCode: exit.ShellStatus(), ExecutionTime: exit.Time.Sub(p.started), Exit: *exit,
		TimedOut: exit.Cause == process.CauseTimeout, Killed: exit.Signal != 0 || exit.Cause == process.CauseTimeout,
	}
	res.Success = res.ExitCode == 0 && !exit.Lost()
	text, err := p.tail(ctx, ended.Streams, process.ReadOptions{Drain: opts.Drain})
	res.Stdout, res.StdoutDropped = text.Stdout, text.StdoutDropped
	res.Stderr, res.StderrDropped = text.Stderr, text.StderrDropped
	return res, cmp.Or(err, lost)
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

// Output returns the output so far, the newest Cmd.MaxOutput bytes of each stream. A
// terminal's output is in Stdout.
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
	for ev, err := range p.Events(ctx, opts) {
		if err != nil {
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
