//go:build linux

package fakeproc

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/observe"
	"github.com/tend-run/tend/process"
)

// proc implements process.Process.
type proc struct {
	m       *manager
	id      process.ID
	spec    process.Spec
	pid     int
	pidfd   *os.File
	started time.Time
	exited  chan struct{} // closed when exit is set
	stop    chan struct{} // closed when the test ends
	ended   sync.Once     // of stop

	mu       sync.Mutex
	outputs  []*output
	pieces   []piece       // in the order of arrival; guarded by mu
	dropped  int           // pieces before pieces[0]; guarded by mu
	exit     *process.Exit // guarded by mu
	exitEnd  [4]int64      // ends of the output that precedes the exit; guarded by mu
	treeGone bool          // guarded by mu
	removed  bool          // guarded by mu
	pinned   bool          // guarded by mu
	cause    process.Cause // what we are about to end it for; guarded by mu
	causeSig int           // guarded by mu

	readers   map[*reader]struct{} // guarded by mu
	followers int                  // readers that follow output; guarded by mu
	idle      *time.Timer          // Spec.KillWithoutReaders; guarded by mu
	timeout   *time.Timer          // guarded by mu
	ttl       *time.Timer          // Retention.TTL, once it is over; guarded by mu
	due       bool                 // ttl is over; guarded by mu

	in input
}

var _ process.Process = (*proc)(nil)

// ID implements process.Process.
func (p *proc) ID() process.ID { return p.id }

// Info implements process.Process.
func (p *proc) Info(context.Context) (process.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return process.Info{}, fmt.Errorf("%w: id %s", process.ErrNotFound, p.id)
	}
	in := process.Info{ID: p.id, PID: p.pid, Spec: p.spec, Started: p.started, Exit: p.exit, TreeGone: p.treeGone, Pinned: p.pinned,
		Stdin: process.StdinInfo{Open: p.in.open && !p.in.eof, Accepted: p.in.accepted}}
	for _, o := range p.outputs {
		in.Streams = append(in.Streams, process.StreamInfo{Stream: o.stream, Base: o.base, End: o.end(), EOF: o.eof})
	}
	switch {
	case p.exit != nil:
		in.State = process.Exited
	case isStopped(p.pid):
		in.State = process.Stopped
	}
	return in, nil
}

// isStopped reads the state letter that follows the name in /proc/PID/stat.
func isStopped(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	i := strings.LastIndexByte(string(b), ')')
	return err == nil && i > 0 && i+2 < len(b) && (b[i+2] == 'T' || b[i+2] == 't')
}

// Resize implements process.Process.
func (p *proc) Resize(_ context.Context, r process.Resize) (before process.Size, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.output(process.PTY)
	switch {
	case o == nil:
		return before, process.ErrNoPTY
	case p.exit != nil || o.eof:
		return before, process.ErrExited
	}
	err = control(o.file, func(fd int) error {
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err != nil {
			return err
		}
		before = process.Size{Cols: w.Col, Rows: w.Row}
		if r.Only != nil && *r.Only != before {
			return nil
		}
		return setSize(fd, r.To)
	})
	return before, err
}

// Trim implements process.Process.
func (p *proc) Trim(_ context.Context, s process.Stream, before int64) error {
	if s < process.Stdout || s > process.PTY {
		return &process.InvalidError{Field: "stream", Reason: "is no output stream"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return process.ErrNotFound
	}
	o := p.output(s)
	if o == nil {
		return &process.InvalidError{Field: "stream", Reason: fmt.Sprintf("is %s, which the process does not have", s)}
	}
	if before < 0 || before > o.end() {
		return fmt.Errorf("%w: %s ends at %d, %d was given", process.ErrOffset, s, o.end(), before)
	}
	o.free(before)
	p.dropPieces()
	o.room.Broadcast()
	return nil
}

// Pin implements process.Process. Nothing is ever removed for a budget here, nor
// without a time of its own.
func (p *proc) Pin(_ context.Context, pinned bool) error {
	p.mu.Lock()
	if p.removed {
		p.mu.Unlock()
		return process.ErrNotFound
	}
	p.pinned = pinned
	p.mu.Unlock()
	p.expire()
	return nil
}

// expire removes the process if its time is over, and it is not pinned.
func (p *proc) expire() {
	p.mu.Lock()
	due := p.due && !p.pinned
	p.mu.Unlock()
	if due {
		_ = p.Remove(context.Background()) // removed already, if not
	}
}

// Wait implements process.Process.
func (p *proc) Wait(ctx context.Context, until process.Until) (process.WaitResult, error) {
	return observe.Wait(ctx, p, until)
}

// runs reports whether the process has not ended.
func (p *proc) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit == nil
}

// Remove implements process.Process.
func (p *proc) Remove(context.Context) error {
	p.checkTree()
	p.mu.Lock()
	switch {
	case p.removed:
		p.mu.Unlock()
		return process.ErrNotFound
	case p.exit == nil || !p.treeGone:
		p.mu.Unlock()
		return process.ErrRunning
	}
	p.removed = true
	for _, o := range p.outputs {
		o.room.Broadcast()
	}
	p.wakeReaders()
	p.mu.Unlock()
	p.m.forget(p)
	p.m.watchers.Tell(process.Event{Kind: process.EventRemoved, ID: p.id, PID: p.pid, Time: time.Now()})
	return nil
}

// reap waits for the end of the leader and makes it known, then waits for the
// end of the tree.
func (p *proc) reap() {
	defer p.pidfd.Close()
	if conn, err := p.pidfd.SyscallConn(); err == nil {
		// An error means that the wait is over, and collect tells how.
		_ = conn.Read(func(fd uintptr) bool {
			var info unix.Siginfo
			err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
			return err == nil && info.Signo != 0 || err != nil && err != unix.EINTR && err != unix.EAGAIN
		})
	}
	p.mu.Lock()
	p.collect()
	p.mu.Unlock()
	close(p.exited)
	p.m.watchers.Tell(process.Event{Kind: process.EventExited, ID: p.id, PID: p.pid, Exit: p.exit, Time: p.exit.Time})
	for pause := time.Millisecond; !p.checkTree(); pause = min(pause*2, 100*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-p.stop:
			return
		}
	}
}

// collect collects the status. Until here the pid is a zombie's and can't be
// another's, so signals under p.mu reach the right process. p.mu is held.
func (p *proc) collect() {
	var ws unix.WaitStatus
	var usage unix.Rusage
	e := &process.Exit{}
	for {
		_, err := unix.Wait4(p.pid, &ws, 0, &usage)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			e.Cause = process.CauseLost
		}
		break
	}
	e.Time = time.Now()
	e.UserTime, e.SystemTime = time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())
	e.MaxRSS = usage.Maxrss << 10
	switch {
	case e.Cause == process.CauseLost:
	case !ws.Signaled():
		e.Code = ws.ExitStatus()
	default:
		e.Signal, e.CoreDumped, e.Cause = int(ws.Signal()), ws.CoreDump(), process.CauseSignalled
		if p.cause != process.CauseExited && (p.cause == process.CauseTimeout || p.cause == process.CauseShutdown || p.causeSig == e.Signal) {
			e.Cause = p.cause
		}
	}
	p.drain()
	for _, o := range p.outputs {
		p.exitEnd[o.stream] = o.end()
		o.room.Broadcast()
	}
	p.exit = e
	if p.idle != nil {
		p.idle.Stop()
	}
	if p.timeout != nil && p.spec.TimeoutScope != process.ScopeTree {
		p.timeout.Stop()
	}
	p.stopFeeding()
	p.wakeReaders()
}

// checkTree finds out whether anything is left, and tells it once.
func (p *proc) checkTree() bool {
	p.mu.Lock()
	if p.treeGone || p.exit == nil || len(observe.Tree(p.pid)) > 0 {
		defer p.mu.Unlock()
		return p.treeGone
	}
	p.drain()
	for _, o := range p.outputs {
		if !o.eof {
			p.mu.Unlock()
			return false // somebody we can't see holds it
		}
	}
	p.treeGone = true
	if p.timeout != nil {
		p.timeout.Stop()
	}
	if ttl := p.spec.Retention.TTL; ttl > 0 {
		p.ttl = time.AfterFunc(ttl, func() {
			p.mu.Lock()
			p.due = true
			p.mu.Unlock()
			p.expire()
		})
	}
	p.mu.Unlock()
	p.m.watchers.Tell(process.Event{Kind: process.EventTreeGone, ID: p.id, PID: p.pid, Time: time.Now()})
	return true
}

// end is the end of the test.
func (p *proc) end() {
	p.mu.Lock()
	for _, t := range []*time.Timer{p.idle, p.timeout, p.ttl} {
		if t != nil {
			t.Stop()
		}
	}
	p.mu.Unlock()
	p.killTree(context.Background(), process.CauseShutdown)
	p.ended.Do(func() { close(p.stop) })
	p.mu.Lock()
	for _, o := range p.outputs {
		o.file.SetReadDeadline(time.Unix(1, 0))
		o.limit = 1 << 62 // a pump that waits for room goes on
		o.room.Broadcast()
	}
	p.mu.Unlock()
}

func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var res error
	if err := conn.Control(func(fd uintptr) { res = do(int(fd)) }); err != nil {
		return err
	}
	return res
}
