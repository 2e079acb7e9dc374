//go:build linux

package client

import (
	"context"
	"fmt"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/files/credentials"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// Boxed is the Root of a container: processes started there run in it. Its Manager shows and
// accepts pids as they are inside the container. A pid that is no longer known, because the
// process ended before this server started, is 0.
type Boxed interface {
	Root
	// Container is set as the label wire.LabelBox of each process that starts there.
	Container() container.ID
}

// In returns a Manager of the same processes that looks up users and paths of its
// starts in root. With a [Boxed] root its processes run in that container.
func (m *Manager) In(root Root) process.Manager {
	r := rooted{m, root}
	if b, ok := root.(Boxed); ok {
		return inside{r, b.Container()}
	}
	return r
}

type rooted struct {
	*Manager
	root Root
}

func (r rooted) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	return r.start(ctx, spec, r.root)
}

// inside is the machine's manager as one container sees it. It does not hide the processes
// of others: package internal/sandbox/sandboxrecord does.
type inside struct {
	rooted
	container container.ID
}

func (in inside) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	if spec.Labels[wire.LabelContainer] != string(in.container) {
		return nil, &process.InvalidError{Field: "labels", Reason: fmt.Sprintf("have no %s=%s, without which nothing starts there",
			wire.LabelContainer, in.container)}
	}
	return withInner(in.rooted.Start(ctx, spec))
}

func (in inside) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	if sel.PID == 0 && sel.Any == "" {
		return withInner(in.Manager.Get(ctx, sel))
	}
	infos, err := in.List(ctx, process.Filter{Labels: map[string]string{wire.LabelContainer: string(in.container)}})
	if err != nil {
		return nil, err
	}
	i, err := process.Resolve(sel, len(infos), func(i int) process.Names {
		return process.NamesOf(infos[i].ID, infos[i].PID, &infos[i].Spec)
	}, func(i int) bool { return infos[i].Exit == nil })
	if err != nil {
		return nil, err
	}
	return withInner(in.Manager.Get(ctx, process.Selector{ID: infos[i].ID}))
}

func withInner(p process.Process, err error) (process.Process, error) {
	if own, ok := p.(*proc); ok && err == nil {
		return boxedProc{own}, nil
	}
	return p, err
}

func (in inside) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	infos, err := in.Manager.List(ctx, f)
	for i := range infos {
		infos[i].PID, infos[i].Session = in.inner(infos[i].ID), 0
	}
	return infos, err
}

// inner is the pid inside; 0: not known.
func (m *Manager) inner(id process.ID) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.procs[id]; p != nil {
		return p.inner
	}
	return 0
}

func (in inside) Watch(ctx context.Context) (process.Watcher, error) {
	w, err := in.Manager.Watch(ctx)
	if err != nil {
		return nil, err
	}
	return innerWatcher{w, in.Manager}, nil
}

type innerWatcher struct {
	process.Watcher
	m *Manager
}

func (w innerWatcher) Next() (process.Event, bool, error) {
	ev, ok, err := w.Watcher.Next()
	if ok && ev.PID != 0 {
		ev.PID = w.m.inner(ev.ID)
	}
	return ev, ok, err
}

// boxedProc is a process with its pid inside.
type boxedProc struct{ *proc }

func (p boxedProc) Info(ctx context.Context) (process.Info, error) {
	info, err := p.proc.Info(ctx)
	info.PID, info.Session = p.inner, 0
	return info, err
}

func (p boxedProc) Read(_ context.Context, opts process.ReadOptions) (process.Reader, error) {
	return p.read(innerSource(p), opts)
}

type innerSource struct{ *proc }

var (
	_ spool.Source   = innerSource{}
	_ spool.Trail    = innerSource{}
	_ spool.Prompter = innerSource{}
)

func (s innerSource) Progress() spool.Progress {
	pr := s.proc.Progress()
	pr.PID = s.inner
	return pr
}

// enter makes of a request one that runs in a container. The account is one inside, whose
// numbers say nothing about the daemon's.
func (m *Manager) enter(req *wire.Spawn, b Boxed, u *credentials.Account) error {
	if !m.knows("boxes") {
		return fmt.Errorf("%w: the keeper that runs starts nothing in sandboxes; upgrade it with tend upgrade", process.ErrUnsupported)
	}
	req.Container, u.Other = b.Container(), true
	return nil
}

// sessionOf is the session in which the process of a slot was started.
func sessionOf(s board.Slot) int {
	if n := s.Session(); n != 0 {
		return n
	}
	return s.PID()
}

// innerOf finds the pid inside of a process that a server before this one started. An older
// keeper did not record it.
func innerOf(j *spool.Journal, pid int) int {
	if j.Inside != 0 || j.Spec.Labels[wire.LabelContainer] == "" {
		return j.Inside
	}
	return procfs.InnerPID(pid)
}
