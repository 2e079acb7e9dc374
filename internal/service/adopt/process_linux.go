package adopt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// errNoOutput: tend has nothing that the process reads or writes.
var errNoOutput = fmt.Errorf("%w: tend did not start this process, and so its input and output are where they were", process.ErrUnsupported)

// Process is a process that was adopted. It holds no descriptor; any number may exist for
// one process, but one that was kept knows of descendants that have lost their parents
// since.
type Process struct {
	id supervisor.Adopted

	mu   sync.Mutex
	seen map[int]int64 // of the tree at the last look: Stat.Start by pid; guarded by mu
	exit *process.Exit // once it has ended; guarded by mu
}

var _ process.Process = (*Process)(nil)

// Open returns the process that was adopted, alive or not.
func Open(a supervisor.Adopted) *Process {
	p := &Process{id: a, seen: map[int]int64{}}
	p.PIDs() // what is below it now
	return p
}

// Is reports whether this is the process that was adopted.
func (p *Process) Is(a supervisor.Adopted) bool { return p.id == a }

// PIDs returns the living processes of the tree; none if they could not be found out.
func (p *Process) PIDs() (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, _ := p.tree() // else none
	for _, m := range all {
		pids = append(pids, m.pid)
	}
	return pids
}

func (p *Process) leader() member { return member{p.id.PID, p.id.Start} }

// ID implements process.Process: it has none, for tend did not start it.
func (p *Process) ID() process.ID { return "" }

// Info implements process.Process.
func (p *Process) Info(context.Context) (process.Info, error) {
	in := process.Info{PID: p.id.PID, Started: time.Now().Add(time.Duration(p.id.Start*int64(procfs.Tick) - procfs.BootTime()))}
	fd, err := p.leader().open()
	if err == nil {
		unix.Close(fd)
		if s, ok := procfs.ReadStat(p.id.PID); ok && s.Stopped() {
			in.State = process.Stopped
		}
		return in, nil
	}
	if !errors.Is(err, process.ErrExited) {
		return in, err
	}
	in.State, in.Exit = process.Exited, p.ended()
	p.mu.Lock()
	defer p.mu.Unlock()
	left, err := p.tree()
	if err != nil {
		return in, fmt.Errorf("%w: %w", err, process.ErrUnavailable)
	}
	in.TreeGone = len(left) == 0
	return in, nil
}

// ended is the exit of the process: nobody but its parent is told its status.
func (p *Process) ended() *process.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		p.exit = &process.Exit{Code: -1, Cause: process.CauseLost, Time: time.Now()}
	}
	e := *p.exit
	return &e
}

// Read implements process.Process: it is refused.
func (p *Process) Read(context.Context, process.ReadOptions) (process.Reader, error) {
	return nil, errNoOutput
}

// Write implements process.Process: it is refused.
func (p *Process) Write(context.Context, process.Input) (process.Accepted, error) {
	return process.Accepted{}, errNoOutput
}

// Signal implements process.Controller.
func (p *Process) Signal(_ context.Context, sig int, scope process.Scope) error {
	if scope == process.ScopeLeader {
		return p.leader().signal(unix.Signal(sig))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.tree()
	if err != nil {
		return fmt.Errorf("%w: %w", err, process.ErrUnavailable)
	}
	sent, failed := 0, error(nil)
	for _, m := range all {
		switch err := m.signal(unix.Signal(sig)); {
		case err == nil:
			sent++
		case !errors.Is(err, process.ErrExited):
			failed = errors.Join(failed, err)
		}
	}
	if sent == 0 && failed == nil {
		return process.ErrExited
	}
	return failed
}

const (
	// killTime bounds how long the end of what was killed is waited for.
	killTime = 10 * time.Second
	// maxLooks bounds the looks at a tree that continues forking.
	maxLooks = 1000
)

// Kill implements process.Controller. All are stopped before any is killed, so that none
// forks meanwhile and none loses the parent that shows where it belongs.
func (p *Process) Kill(ctx context.Context) (res process.KillResult, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.tree()
	if err != nil {
		return res, fmt.Errorf("%w: %w", err, process.ErrUnavailable)
	}
	if len(all) == 0 {
		return res, process.ErrExited
	}
	stopped := map[member]bool{}
	for range maxLooks {
		grew := false
		for _, m := range all {
			if !stopped[m] {
				stopped[m], grew = true, true
				_ = m.signal(unix.SIGSTOP) // what has ended, or may not be signalled, forks on
			}
		}
		if !grew {
			break
		}
		next, err := p.tree()
		if err != nil {
			break // these are killed even so
		}
		all = next
	}
	for m := range stopped {
		_ = m.signal(unix.SIGKILL) // what is left is told
	}
	for begin := time.Now(); ; {
		if all, err = p.tree(); err != nil {
			return res, fmt.Errorf("%w: %w", err, process.ErrUnavailable)
		}
		if len(all) == 0 {
			return res, nil
		}
		if time.Since(begin) > killTime || !backoff.Wait(ctx, backoff.Next(begin)) {
			break
		}
	}
	res.Names = map[int]string{}
	for _, m := range all {
		res.Survivors = append(res.Survivors, m.pid)
		if name, err := procfs.Read(m.pid, "comm"); err == nil {
			res.Names[m.pid] = string(name[:max(0, len(name)-1)])
		}
	}
	return res, ctx.Err()
}

// Wait implements process.Controller: for the exit, and for the end of the tree. Other
// conditions are refused.
func (p *Process) Wait(ctx context.Context, u process.Until) (process.WaitResult, error) {
	if u != (process.Until{}) && u != (process.Until{TreeGone: true}) {
		return process.WaitResult{}, errNoOutput
	}
	if err := p.awaitExit(ctx); err != nil {
		return process.WaitResult{}, err
	}
	res := process.WaitResult{Exit: p.ended(), Met: true}
	for begin := time.Now(); u.TreeGone; {
		in, err := p.Info(ctx)
		if err == nil && in.TreeGone {
			break
		}
		if !backoff.Wait(ctx, 10*backoff.Next(begin)) {
			return process.WaitResult{}, ctx.Err()
		}
	}
	return res, nil
}

// awaitExit returns when the process has ended.
func (p *Process) awaitExit(ctx context.Context) error {
	fd, err := p.leader().open()
	if errors.Is(err, process.ErrExited) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that no thread waits
		unix.Close(fd)
		return fmt.Errorf("pidfd of %d: %w", p.id.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.Read(func(fd uintptr) bool { return pidfd.Ended(int(fd), 0) }); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("pidfd of %d: %w", p.id.PID, err)
	}
	return nil
}

// Resize implements process.Controller: there is no terminal of tend's.
func (p *Process) Resize(context.Context, process.Resize) (process.Size, error) {
	return process.Size{}, process.ErrNoPTY
}

// Trim, Pin and Remove implement process.Controller: tend keeps nothing of it.
func (p *Process) Trim(context.Context, process.Stream, int64) error { return errNoOutput }

// Pin is refused.
func (p *Process) Pin(context.Context, bool) error { return errNoOutput }

// Remove is refused.
func (p *Process) Remove(context.Context) error { return errNoOutput }
