//go:build linux

package fakeproc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/observe"
	"github.com/tend-run/tend/process"
)

// killWait bounds how long Kill waits for the tree to be empty.
const killWait = 10 * time.Second

// Signal implements process.Process.
func (p *proc) Signal(_ context.Context, sig int, scope process.Scope) error {
	if sig < 0 || sig > 64 {
		return &process.InvalidError{Field: "signal", Reason: fmt.Sprintf("is %d; 0 to 64 are signals", sig)}
	}
	if scope > process.ScopeGroup {
		return &process.InvalidError{Field: "scope", Reason: "is unknown"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil && sig != 0 && (p.cause == process.CauseExited || p.cause == process.CauseKilled) {
		p.cause, p.causeSig = process.CauseKilled, sig
	}
	if !p.send(unix.Signal(sig), scope) {
		return process.ErrExited
	}
	return nil
}

// send reports whether anybody received the signal. p.mu is held, so the
// leader is not reaped meanwhile and its pid is not used again.
func (p *proc) send(sig unix.Signal, scope process.Scope) bool {
	if p.treeGone {
		return false
	}
	switch scope {
	case process.ScopeLeader:
		return p.exit == nil && unix.Kill(p.pid, sig) == nil
	case process.ScopeGroup:
		return unix.Kill(-p.pid, sig) == nil
	}
	sent := p.exit == nil && unix.Kill(p.pid, sig) == nil
	for _, pid := range observe.Tree(p.pid) {
		if pid != p.pid && unix.Kill(pid, sig) == nil {
			sent = true
		}
	}
	return sent
}

// Kill implements process.Process.
func (p *proc) Kill(ctx context.Context) (process.KillResult, error) {
	if p.checkTree() {
		return process.KillResult{}, process.ErrExited
	}
	return p.killTree(ctx, process.CauseKilled)
}

// killTree ends the tree and waits for it. Everybody is stopped before anybody
// is killed: what is stopped does not fork, and its children still hang
// together, sessions of their own or not.
func (p *proc) killTree(ctx context.Context, cause process.Cause) (process.KillResult, error) {
	p.mu.Lock()
	if p.exit == nil && (p.cause == process.CauseExited || p.cause == process.CauseKilled) {
		p.cause, p.causeSig = cause, int(unix.SIGKILL)
	}
	p.mu.Unlock()
	members := map[int]int{} // pid: pidfd
	defer func() {
		for _, fd := range members {
			unix.Close(fd)
		}
	}()
	for deadline := time.Now().Add(killWait); ; {
		p.freeze(members)
		for _, fd := range members {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return process.KillResult{}, ctx.Err()
		}
		left := survivors(members)
		if len(left) == 0 && len(observe.Tree(p.pid)) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return process.KillResult{Survivors: left}, nil
		}
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		return process.KillResult{}, ctx.Err()
	}
	p.checkTree()
	return process.KillResult{}, nil
}

// freeze stops all members of the tree, until no new ones are found.
func (p *proc) freeze(members map[int]int) {
	for fresh := true; fresh; {
		fresh = false
		for _, pid := range observe.Tree(p.pid) {
			if _, known := members[pid]; known {
				continue
			}
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				members[pid], fresh = fd, true
				unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
			}
		}
	}
}

// survivors are those whose pidfd does not tell that they are dead.
func survivors(members map[int]int) []int {
	var left []int
	for pid, fd := range members {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); err != nil || n == 0 {
			left = append(left, pid)
		}
	}
	slices.Sort(left)
	return left
}

// armTimers starts Spec.Timeout and Spec.KillWithoutReaders. p.mu is held.
func (p *proc) armTimers() {
	if d := p.spec.Timeout; d > 0 {
		p.timeout = time.AfterFunc(d, func() {
			if p.spec.TimeoutScope == process.ScopeTree {
				p.m.background(func() { p.killTree(context.Background(), process.CauseTimeout) })
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.exit == nil {
				p.cause, p.causeSig = process.CauseTimeout, int(unix.SIGKILL)
				p.send(unix.SIGKILL, p.spec.TimeoutScope)
			}
		})
	}
	p.armIdle()
}

// armIdle starts the time without readers. p.mu is held.
func (p *proc) armIdle() {
	if d := p.spec.KillWithoutReaders; d > 0 && p.exit == nil && p.followers == 0 {
		p.idle = time.AfterFunc(d, func() {
			p.mu.Lock()
			alone := p.followers == 0 && p.exit == nil
			p.mu.Unlock()
			if alone {
				p.m.background(func() { p.killTree(context.Background(), process.CauseNoReaders) })
			}
		})
	}
}

// background runs f unless the test is over, and lets the end of the test wait
// for it.
func (m *manager) background(f func()) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.wg.Add(1)
	m.mu.Unlock()
	defer m.wg.Done()
	f()
}
