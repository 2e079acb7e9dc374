package tend

import (
	"errors"
	"io"
	"maps"
	"strings"

	"github.com/tend-run/tend/internal/lib/onexit"
	"github.com/tend-run/tend/process"
)

// Cmd describes a command to run, like exec.Cmd of the standard library. Create it with
// [Command] or [Shell], and set other fields as needed:
//
//	cmd := tend.Command("npm", "run", "dev")
//	cmd.Dir = "/app"
//	cmd.Stdout = os.Stdout
//
// A Cmd may be reused; each [Spawn] starts a new process.
type Cmd struct {
	// Spec describes the process: Argv or Shell, Dir, Env, Timeout, User, PTY, Limits,
	// Retention, Labels, Name, Tag, ID. Its Stdin is set by the two fields below.
	process.Spec

	// Stdin is copied to the process; its end is the end of stdin. Nil: the process reads
	// end of file at once. A terminal (Spec.PTY) gets the bytes as if they were typed, and
	// gets no end of file.
	//
	// The copying ends with the process. Wait and Close do not wait for a Read
	// that blocks longer than that.
	Stdin io.Reader
	// StdinPipe keeps stdin open for [Process.Stdin]. Not together with Stdin.
	StdinPipe bool

	// Stdout and Stderr get the output as it arrives, from its first byte, one Write at a
	// time. A terminal writes only to Stdout. Nil: the server still keeps the output, for
	// [Process.Stdout], [Process.Output] and [Process.Wait]. A writer that fails gets
	// nothing more, and Wait returns its error. No writer is called after Wait or
	// [Process.Close] has returned.
	Stdout, Stderr io.Writer
	// OnGap is called, in order, for bytes that retention freed before Stdout and Stderr
	// got them. This happens if the writers fell behind the process by Retention.Limit.
	// Nil: [Process.Wait] returns the first such gap as a [*process.GapError].
	OnGap func(process.Gap)

	// MaxOutput bounds the text that [Process.Output] and [Result] hold of
	// each stream, in bytes: the newest is kept. 0: 1 MiB; negative: nothing.
	// Writers and readers get everything.
	MaxOutput int

	// OnExit is a shell line that runs when the process has ended, as its user, in its
	// directory and environment, with TEND_EXIT_STATUS and others set. The same facts are
	// sent as JSON to OnExitURL, http or https, repeatedly until the answer is 2xx, for a
	// day. Both happen at least once, whichever role of tend dies, and whether or not this
	// program still runs; the process is kept until then. They are for processes of the
	// machine, not of a sandbox.
	OnExit, OnExitURL string
}

// Command returns the Cmd that runs a program with arguments. A name without a
// slash is looked up in the PATH of the process.
func Command(name string, arg ...string) Cmd {
	return Cmd{Spec: process.Spec{Argv: append([]string{name}, arg...)}}
}

// Shell returns the Cmd that runs a command line by /bin/sh.
func Shell(line string) Cmd { return Cmd{Spec: process.Spec{Shell: line}} }

// spec returns the spec with the mode of stdin that the fields ask for.
func (c *Cmd) spec() (process.Spec, error) {
	s := c.Spec
	if c.Stdin != nil && c.StdinPipe {
		return s, &process.InvalidError{Field: "Cmd.Stdin", Reason: "is set together with Cmd.StdinPipe; set one of them"}
	}
	if err := onexit.Ask(&s, c.OnExit, c.OnExitURL); err != nil {
		return s, ofCmd(err)
	}
	if s.PTY == nil && (c.Stdin != nil || c.StdinPipe) {
		s.Stdin = process.StdinPipe
	}
	return s, nil
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
	out := maps.Clone(base)
	maps.Copy(out, top)
	return out
}

// ofCmd makes an error about a field of a spec one about the field of a Cmd:
// "limits.oom_score_adj" is Cmd.Limits.OOMScoreAdj.
func ofCmd(err error) error {
	wrong, ok := errors.AsType[*process.InvalidError](err)
	if !ok {
		return err
	}
	fields := strings.Split(wrong.Field, " and ")
	for i, field := range fields {
		before, index, indexed := strings.Cut(field, "[")
		fields[i] = "Cmd." + goName(before)
		if at := strings.LastIndexByte(index, ']'); indexed && at >= 0 {
			fields[i] += "[" + index[:at+1] + goName(index[at+1:])
		}
	}
	return &process.InvalidError{Field: strings.Join(fields, " and "), Reason: wrong.Reason}
}

var initials = map[string]string{"id": "ID", "cpu": "CPU", "pty": "PTY", "url": "URL", "ttl": "TTL", "oom": "OOM"}

// goName returns the Go name of a path of fields: "retention.ttl" is
// Retention.TTL.
func goName(path string) string {
	parts := strings.Split(path, ".")
	for i, part := range parts {
		parts[i] = ""
		for word := range strings.SplitSeq(part, "_") {
			if all, ok := initials[word]; ok {
				word = all
			} else if word != "" {
				word = strings.ToUpper(word[:1]) + word[1:]
			}
			parts[i] += word
		}
	}
	return strings.Join(parts, ".")
}
