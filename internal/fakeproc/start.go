//go:build linux

package fakeproc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/account"
	"github.com/tend-run/tend/process"
)

// Start implements process.Manager.
func (m *manager) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	if spec.ID == "" {
		spec.ID = process.NewID()
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, done, err := m.claim(ctx, &spec)
	if err != nil {
		return nil, err
	}
	if p != nil {
		return p, nil
	}
	defer done()
	if p, err = m.start(&spec); err != nil {
		return nil, err
	}
	m.register(p)
	m.wg.Go(p.reap)
	for _, o := range p.outputs {
		m.wg.Go(func() { p.pump(o) })
	}
	if p.in.file != nil {
		m.wg.Go(p.feed)
	}
	p.mu.Lock()
	p.armTimers()
	p.mu.Unlock()
	m.mu.Lock()
	late := m.closed
	m.mu.Unlock()
	if late {
		p.end()
		return nil, process.ErrUnavailable
	}
	return p, nil
}

func (m *manager) start(spec *process.Spec) (*proc, error) {
	l := &spec.Limits
	if l.MemoryMax != 0 || l.PidsMax != 0 || l.CPUWeight != 0 {
		return nil, &process.StartError{Reason: process.StartLimits, What: "limits of the tree need a cgroup", Err: process.ErrUnsupported}
	}
	acc, err := account.Lookup(spec.User)
	if err != nil {
		return nil, &process.StartError{Reason: process.StartBadUser, What: spec.User, Err: err}
	}
	prog := &program{argv: spec.Argv, env: environ(spec, acc), dir: spec.Dir, acc: acc}
	if spec.Shell != "" {
		prog.argv = []string{"/bin/sh", "-c", spec.Shell}
	}
	if prog.dir == "" {
		prog.dir = acc.Home
		if fi, err := os.Stat(prog.dir); err != nil || !fi.IsDir() {
			prog.dir = "/"
		}
	}
	if err := checkDir(prog.dir); err != nil {
		return nil, &process.StartError{Reason: process.StartBadDir, What: prog.dir, Err: err}
	}
	if prog.path, err = lookPath(prog.argv[0], prog.dir, prog.env); err != nil {
		return nil, err
	}
	p := &proc{m: m, id: spec.ID, spec: *spec, pinned: spec.Retention.Pin, exited: make(chan struct{}), stop: make(chan struct{})}
	p.in.more, p.in.turn, p.in.room = sync.NewCond(&p.mu), make(chan struct{}, 1), make(chan struct{}, 1)
	p.in.turn <- struct{}{}
	child, err := p.openStreams(acc)
	defer func() {
		for i, fd := range child {
			if i == 0 || fd != child[i-1] {
				unix.Close(fd)
			}
		}
	}()
	if err == nil {
		err = p.fork(prog, child)
	}
	if err != nil {
		for _, o := range p.outputs {
			o.file.Close()
		}
		if p.in.file != nil {
			p.in.file.Close()
		}
		return nil, err
	}
	return p, nil
}

// program is what the kernel is told.
type program struct {
	path string
	argv []string
	env  []string
	dir  string
	acc  *account.Account
}

// fork runs the program in a session of its own.
func (p *proc) fork(prog *program, child []int) error {
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir: prog.dir, Env: prog.env, Files: []uintptr{uintptr(child[0]), uintptr(child[1]), uintptr(child[2])},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	}
	if p.spec.PTY != nil {
		attr.Sys.Setctty, attr.Sys.Ctty = true, 0
	}
	if prog.acc.Other {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(prog.acc.UID), Gid: uint32(prog.acc.GID)}
		for _, g := range prog.acc.Groups {
			attr.Sys.Credential.Groups = append(attr.Sys.Credential.Groups, uint32(g))
		}
	}
	lim := &p.spec.Limits
	stopped := len(lim.Rlimits) > 0 || lim.Nice != 0 || lim.OOMScoreAdj != 0
	if stopped {
		// The child stops at its first instruction, so that nothing of the
		// program runs without its limits. Tracing is per thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		attr.Sys.Ptrace = true
	}
	pid, err := syscall.ForkExec(prog.path, prog.argv, attr)
	if err != nil {
		return startError(err, prog)
	}
	p.pid, p.started = pid, time.Now()
	if stopped {
		if err := applyLimits(pid, lim); err != nil {
			unix.Kill(pid, unix.SIGKILL)
			unix.Wait4(pid, nil, 0, nil)
			unix.Close(pidfd)
			return &process.StartError{Reason: process.StartLimits, What: prog.argv[0], Err: err}
		}
	}
	p.pidfd = newFile(pidfd, "pidfd")
	return nil
}

func startError(err error, prog *program) error {
	e := &process.StartError{Reason: process.StartOther, What: prog.argv[0], Err: err}
	var no syscall.Errno
	errors.As(err, &no)
	switch no {
	case unix.ENOENT, unix.ENOTDIR:
		e.Reason = process.StartNotFound
	case unix.EACCES:
		e.Reason = process.StartPermission
		if prog.acc.Other && !mayEnter(prog.acc, prog.dir) {
			e.Reason, e.What = process.StartBadDir, prog.dir
		}
	case unix.EPERM:
		e.Reason = process.StartBadUser
	case unix.ENOEXEC:
		e.Reason = process.StartFormat
	case unix.E2BIG, unix.ENAMETOOLONG:
		e.Reason = process.StartTooLong
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		e.Reason = process.StartResources
	}
	return e
}

func checkDir(dir string) error {
	fi, err := os.Stat(dir)
	var pe *os.PathError
	switch {
	case errors.As(err, &pe):
		return pe.Err
	case err != nil:
		return err
	case !fi.IsDir():
		return syscall.ENOTDIR
	}
	return nil
}

// lookPath finds the program as execvp would, in the PATH of the process's own
// environment.
func lookPath(file, dir string, env []string) (string, error) {
	if strings.Contains(file, "/") {
		return file, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	reason, err := process.StartNotFound, error(syscall.ENOENT)
	for d := range strings.SplitSeq(path, ":") {
		full := filepath.Join(d, file)
		if !filepath.IsAbs(d) {
			full = filepath.Join(dir, full)
		}
		fi, serr := os.Stat(full)
		switch {
		case serr != nil || !fi.Mode().IsRegular():
		case fi.Mode()&0o111 == 0:
			reason, err = process.StartPermission, syscall.EACCES
		default:
			return full, nil
		}
	}
	return "", &process.StartError{Reason: reason, What: file, Err: err}
}
