package tend

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// Process is a handle to one process, with what a caller of os/exec expects:
// readers, a writer, callbacks, Wait. It works on any [process.Process]; made
// by a [Client] it survives lost connections by itself.
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

	followed chan struct{}     // closed when the callbacks have seen everything
	missed   *process.GapError // by the callbacks, if it was not told; set before followed is closed
	close    context.CancelFunc
	closing  context.Context // ends when the handle is closed; of no call
}

// Open makes a handle to a process of any manager.
func Open(ctx context.Context, p process.Process) (*Process, error) {
	info, err := p.Info(ctx)
	if err != nil {
		return nil, err
	}
	h := newProcess(p, &info, defaultMaxOutput)
	close(h.followed)
	return h, nil
}

func newProcess(p process.Process, info *process.Info, max int64) *Process {
	h := &Process{proc: p, pid: info.PID, command: info.Spec.Command(), started: info.Started, pty: info.Spec.PTY != nil, max: max}
	out := process.Stdout
	if h.pty {
		out = process.PTY
	}
	h.stdout = &Output{proc: p, stream: out}
	h.stderr = &Output{proc: p, stream: process.Stderr}
	h.stdin = &Input{proc: p, pty: h.pty}
	h.followed = make(chan struct{})
	h.closing, h.close = context.WithCancel(context.Background())
	return h
}

// Spawn starts a command on any manager and returns without waiting for its
// end. It is [Client.Spawn] for managers that are no Client.
func Spawn(ctx context.Context, m process.Manager, cmd Cmd) (*Process, error) {
	spec := cmd.spec()
	var p process.Process
	var info process.Info
	var err error
	if c, ok := m.(*Client); ok {
		// The answer to the start says it all; one round trip is enough.
		if info, err = c.start(ctx, spec); err == nil {
			p = &remote{client: c, id: info.ID}
		}
	} else if p, err = m.Start(ctx, spec); err == nil {
		info, err = p.Info(ctx)
	}
	if err != nil {
		return nil, err
	}
	h := newProcess(p, &info, cmd.maxOutput())
	if cmd.OnStdout == nil && cmd.OnStderr == nil {
		close(h.followed)
		return h, nil
	}
	go func() { // Close and Wait wait for it
		defer close(h.followed)
		// What else keeps the callbacks from the rest of the output is told
		// by Wait, which reads the same.
		_, err := h.deliver(h.closing, process.ReadOptions{}, callbacks{cmd.OnStdout, cmd.OnStderr, cmd.OnGap, false})
		h.missed, _ = errors.AsType[*process.GapError](err)
	}()
	return h, nil
}

// Spawn starts a command and returns without waiting for its end.
func (c *Client) Spawn(ctx context.Context, cmd Cmd) (*Process, error) {
	return Spawn(ctx, c, cmd)
}

// Attach returns a handle to a process that runs or has run, whoever started
// it. id is its id; a unique prefix of it, a name, tag or pid are good, too.
func (c *Client) Attach(ctx context.Context, id string) (*Process, error) {
	info, err := c.info(ctx, process.Selector{Any: id})
	if err != nil {
		return nil, err
	}
	h := newProcess(&remote{client: c, id: info.ID}, &info, defaultMaxOutput)
	close(h.followed)
	return h, nil
}

// ID names the process for ever.
func (p *Process) ID() process.ID { return p.proc.ID() }

// PID is the kernel's number of the process, which it may give to another
// after the exit.
func (p *Process) PID() int { return p.pid }

// Command is what was spawned, as a person would type it.
func (p *Process) Command() string { return p.command }

// Started is when the program began to run.
func (p *Process) Started() time.Time { return p.started }

// Raw is the process in the domain's words, with what the handle leaves out:
// readers of events, waits for conditions, trim, remove.
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

// Stderr is Stdout for stderr. A process with a terminal has none: it reads as
// empty at the end.
func (p *Process) Stderr() *Output { return p.stderr }

// Stdin writes to stdin, or to the terminal. Each call returns the same
// writer.
func (p *Process) Stdin() *Input { return p.stdin }

// SendStdin writes text to stdin: Stdin().Write with a context.
func (p *Process) SendStdin(ctx context.Context, text string) error {
	_, err := p.stdin.WriteContext(ctx, []byte(text))
	return err
}

// CloseStdin ends stdin: Stdin().Close with a context.
func (p *Process) CloseStdin(ctx context.Context) error { return p.stdin.CloseContext(ctx) }

// Kill ends the process and all its descendants and returns when they are
// gone. killed is false if the process had exited already; what was left of
// its descendants is ended all the same. Those that cannot be ended are told
// in a [*SurvivorsError].
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

// SurvivorsError: these processes did not end when they were killed.
type SurvivorsError struct{ PIDs []int }

func (e *SurvivorsError) Error() string {
	return fmt.Sprintf("the kernel has not ended the processes %v yet (uninterruptible sleep); kill again later", e.PIDs)
}

// KillWhenDone kills the process when ctx ends, which no other context does.
// stop takes it back; it reports whether it came in time.
func (p *Process) KillWhenDone(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// The context that ended can't carry the call.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, _ = p.proc.Kill(ctx)
	})
}

// Signal sends a signal to the process and all its descendants.
// [process.ErrExited] if nobody is left.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.proc.Signal(ctx, int(sig), process.ScopeTree)
}

// Pin keeps the process and its output when it has finished, beyond its TTL and
// the server's budget, until it is unpinned or removed.
func (p *Process) Pin(ctx context.Context) error { return p.proc.Pin(ctx, true) }

// Unpin gives the process up to its TTL and the server's budget again.
func (p *Process) Unpin(ctx context.Context) error { return p.proc.Pin(ctx, false) }

// Resize changes the size of the terminal, in character cells.
func (p *Process) Resize(ctx context.Context, cols, rows uint16) error {
	_, err := p.proc.Resize(ctx, process.Resize{To: process.Size{Cols: cols, Rows: rows}})
	return err
}

// Close frees what the handle holds: readers and callbacks end. The process
// is not touched.
func (p *Process) Close() error {
	p.close()
	p.stdout.Close()
	p.stderr.Close()
	<-p.followed
	return nil
}
