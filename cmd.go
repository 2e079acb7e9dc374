package tend

import (
	"time"

	"github.com/tend-run/tend/process"
)

// Cmd says what to spawn. Only Line or Args is needed.
type Cmd struct {
	// Line is a command line for /bin/sh, or Args a program and its
	// arguments.
	Line string
	Args []string

	Dir string            // working directory, absolute; "": the user's home
	Env map[string]string // on top of what the process inherits
	// Timeout kills the process and all its descendants. 0: never.
	Timeout time.Duration
	// NoStdin gives the process an empty stdin. By default it is a pipe that
	// [Process.Stdin] writes to.
	NoStdin bool

	// OnStdout and OnStderr are called with the output as it arrives, from
	// its first byte, one call at a time. The bytes are the callback's own
	// for the time of the call only. They end with the output,
	// [Process.Close] or the client.
	OnStdout, OnStderr func([]byte)
	// OnGap is called, in their order, for bytes that retention freed before
	// these callbacks got them: they were slower than the process for as long
	// as it took to write Spec.Retention.Limit. Nil: [Process.Wait] returns
	// the first such gap as a [*process.GapError].
	OnGap func(process.Gap)

	// MaxOutput bounds the text that [Process.Output] and [Result] hold of
	// each stream, in bytes: the newest is kept. 0: 1 MiB; negative: nothing.
	// Callbacks and readers get everything.
	MaxOutput int

	// Spec is everything else a process can be asked to be: user, terminal,
	// limits, retention, labels, name, tag, id. Fields above that are set win
	// over those of Spec.
	Spec process.Spec
}

// spec folds the fields into one spec.
func (c *Cmd) spec() process.Spec {
	s := c.Spec
	if c.Line != "" {
		s.Shell = c.Line
	}
	if len(c.Args) > 0 {
		s.Argv = c.Args
	}
	if c.Dir != "" {
		s.Dir = c.Dir
	}
	if len(c.Env) > 0 {
		s.Env = overlay(s.Env, c.Env)
	}
	if c.Timeout != 0 {
		s.Timeout = c.Timeout
	}
	if s.PTY == nil && !c.NoStdin {
		s.Stdin = process.StdinPipe
	}
	return s
}

const defaultMaxOutput = 1 << 20

func (c *Cmd) maxOutput() int64 {
	switch {
	case c.MaxOutput == 0:
		return defaultMaxOutput
	case c.MaxOutput < 0:
		return 0
	}
	return int64(c.MaxOutput)
}

// overlay returns base with top's entries, and changes neither.
func overlay(base, top map[string]string) map[string]string {
	if len(base) == 0 {
		return top
	}
	out := make(map[string]string, len(base)+len(top))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range top {
		out[k] = v
	}
	return out
}
