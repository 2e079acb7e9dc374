package tend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// Process is a handle to one process, with what a caller of os/exec expects: readers, a
// writer, Wait. [Spawn] and [Attach] return one for a process of any [process.Manager];
// the handle of a [Client] survives lost connections.
//
// The handle keeps no output: [Process.Stdout], [Process.Output] and Wait read
// it from the server's spool, each from its own offset, so that nothing is
// missed and nothing is held twice. All methods may be called concurrently,
// but one reader or writer belongs to one caller at a time.
type Process struct {
	proc    process.Process
	pid     int
	command string
	started time.Time
	pty     bool
	max     int64 // Cmd.MaxOutput

	stdout, stderr *Output
	stdin          *Input
	copies         copies

	life  context.Context // of the handle, and of no call
	close context.CancelFunc
}

func newProcess(p process.Process, info *process.Info, maxOutput int64) *Process {
	h := &Process{proc: p, pid: info.PID, command: info.Spec.Command(), started: info.Started, pty: info.Spec.PTY != nil, max: maxOutput}
	h.life, h.close = context.WithCancel(context.Background())
	out := process.Stdout
	if h.pty {
		out = process.PTY
	}
	h.stdout, h.stderr = newOutput(h.life, p, out), newOutput(h.life, p, process.Stderr)
	h.stdin = &Input{proc: p, life: h.life, pty: h.pty}
	return h
}

// Spawn starts a command on any manager and returns without waiting for its end. It is
// [Client.Spawn] for other managers than a Client.
//
// The errors are those of [process.Manager.Start]; an invalid field is named as a field
// of Cmd.
func Spawn(ctx context.Context, m process.Manager, cmd Cmd) (*Process, error) {
	spec, err := cmd.spec()
	if err != nil {
		return nil, err
	}
	if c, ok := m.(*Client); ok && c.sandbox != "" && (cmd.OnExit != "" || cmd.OnExitURL != "") {
		return nil, &process.InvalidError{Field: "Cmd.OnExit",
			Reason: "is for processes of the machine, not for those of a sandbox; Wait tells of their end"}
	}
	p, info, err := start(ctx, m, spec)
	if err != nil {
		return nil, ofCmd(err)
	}
	h := newProcess(p, &info, cmd.maxOutput())
	h.copies.start(h, cmd)
	return h, nil
}

// start is Manager.Start with what is known of the process then. A server's
// answer says both, which saves a round trip.
func start(ctx context.Context, m process.Manager, spec process.Spec) (process.Process, process.Info, error) {
	if c, ok := m.(*Client); ok {
		info, err := c.start(ctx, spec, false)
		return &remote{client: c, id: info.ID}, info, err
	}
	p, err := m.Start(ctx, spec)
	return known(ctx, p, err)
}

func known(ctx context.Context, p process.Process, err error) (process.Process, process.Info, error) {
	if err != nil {
		return nil, process.Info{}, err
	}
	info, err := p.Info(ctx)
	return p, info, err
}

// Attach returns a handle to a process that runs or has run. Any client may have
// started it.
func Attach(ctx context.Context, m process.Manager, sel process.Selector) (*Process, error) {
	var p process.Process
	var info process.Info
	var err error
	if c, ok := m.(*Client); ok {
		info, err = c.info(ctx, sel)
		p = &remote{client: c, id: info.ID}
	} else {
		p, err = m.Get(ctx, sel)
		p, info, err = known(ctx, p, err)
	}
	if err != nil {
		return nil, err
	}
	return newProcess(p, &info, defaultMaxOutput), nil
}

// Spawn starts a command and returns without waiting for its end.
func (c *Client) Spawn(ctx context.Context, cmd Cmd) (*Process, error) { return Spawn(ctx, c, cmd) }

// Attach returns a handle to a process that runs or has run. Any client may have
// started it. name is its id, a unique beginning of the id, its name, its tag or its pid.
func (c *Client) Attach(ctx context.Context, name string) (*Process, error) {
	return Attach(ctx, c, process.Selector{Any: name})
}

// ID returns the permanent ID of the process.
func (p *Process) ID() process.ID { return p.proc.ID() }

// PID returns the kernel's pid of the process. After the exit the kernel may reuse it.
func (p *Process) PID() int { return p.pid }

// Command returns the command as a person would type it.
func (p *Process) Command() string { return p.command }

// Started is when the program began to run.
func (p *Process) Started() time.Time { return p.started }

// Raw returns the underlying process.Process, for what the handle does not offer: waits
// for conditions, writers by name, trim, remove.
func (p *Process) Raw() process.Process { return p.proc }

// Exit returns how the process ended, or nil while it runs.
func (p *Process) Exit(ctx context.Context) (*process.Exit, error) {
	info, err := p.proc.Info(ctx)
	return info.Exit, err
}

// ExitCode returns the exit code as a shell shows it (128+n for signal n, 124
// for a timeout); exited is false while the process runs.
func (p *Process) ExitCode(ctx context.Context) (code int, exited bool, err error) {
	exit, err := p.Exit(ctx)
	if err != nil || exit == nil {
		return 0, false, err
	}
	return exit.ShellStatus(), true, nil
}

// Stdout reads the output from its first byte, or that of the terminal. Each
// call returns the same reader.
func (p *Process) Stdout() *Output { return p.stdout }

// Stderr is like Stdout, for stderr. A process with a terminal has no stderr: it reads
// as empty at the end.
func (p *Process) Stderr() *Output { return p.stderr }

// Events returns the events of the process, including its output in the order of
// arrival, from and to the positions in opts: see [process.Reader]. An error ends the
// sequence; the end of ctx is an error.
func (p *Process) Events(ctx context.Context, opts process.ReadOptions) iter.Seq2[process.Event, error] {
	return process.Events(ctx, p.proc, opts)
}

// Stdin returns the writer to stdin, if Cmd.StdinPipe kept it open, or to the terminal.
// Each call returns the same writer.
func (p *Process) Stdin() *Input { return p.stdin }

// Kill ends the process and all its descendants and returns when they are gone. killed
// is false if the process had exited already; its remaining descendants are killed
// nevertheless. A [*SurvivorsError] lists those that could not be killed.
func (p *Process) Kill(ctx context.Context) (killed bool, err error) {
	exit, err := p.Exit(ctx)
	if err != nil {
		return false, err
	}
	res, err := p.proc.Kill(ctx)
	switch {
	case errors.Is(err, process.ErrExited):
		return false, nil
	case err != nil:
		return false, err
	case len(res.Survivors) > 0:
		return exit == nil, &SurvivorsError{PIDs: res.Survivors}
	}
	return exit == nil, nil
}

// SurvivorsError lists processes that did not end when they were killed.
type SurvivorsError struct{ PIDs []int }

func (e *SurvivorsError) Error() string {
	return fmt.Sprintf("the kernel has not ended the processes %v yet (uninterruptible sleep); kill again later", e.PIDs)
}

// KillWhenDone kills the process when ctx ends; no other context does that. stop
// cancels this, and reports whether it came in time.
func (p *Process) KillWhenDone(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// The context that ended can't carry the call.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, _ = p.proc.Kill(ctx)
	})
}

// Signal sends a signal to the process and all its descendants. If no process is left,
// the error is [process.ErrExited].
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.proc.Signal(ctx, int(sig), process.ScopeTree)
}

// Pin keeps the process and its output after it has finished, beyond its TTL and the
// server's budget, until it is unpinned or removed.
func (p *Process) Pin(ctx context.Context) error { return p.proc.Pin(ctx, true) }

// Unpin gives the process up to its TTL and the server's budget again.
func (p *Process) Unpin(ctx context.Context) error { return p.proc.Pin(ctx, false) }

// Resize changes the size of the terminal, in character cells.
func (p *Process) Resize(ctx context.Context, cols, rows uint16) error {
	_, err := p.proc.Resize(ctx, process.Resize{To: process.Size{Cols: cols, Rows: rows}})
	return err
}

// Close frees the resources of the handle: readers, writers and copies end. It does not
// affect the process.
func (p *Process) Close() error {
	p.close()
	p.stdout.Close()
	p.stderr.Close()
	p.copies.wait()
	return nil
}
