package host

import (
	"context"
	"log/slog"
	"maps"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/process"
)

// scoped is the machine's manager as one sandbox sees it.
type scoped struct {
	inner process.Manager
	box   *box
}

var _ process.Manager = (*scoped)(nil)

// Start fills in what the sandbox gives and marks the process as its own.
func (s *scoped) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	b := s.box
	b.touch()
	b.starting.RLock()
	defer b.starting.RUnlock()
	b.mu.Lock()
	switch {
	case b.gone || b.rec.Destroying:
		b.mu.Unlock()
		return nil, driver.ErrNotFound
	case !b.rec.StoppedAt.IsZero():
		b.mu.Unlock()
		return nil, driver.ErrStopped
	}
	if spec.User == "" {
		spec.User = b.user()
	}
	if spec.Dir == "" {
		spec.Dir = b.dir()
	}
	if u, err := lookup(spec.User); err == nil {
		if err := b.letIn(u.UID); err != nil {
			b.d.log.Warn("user not let into the sandbox", slog.String("id", string(b.id)), slog.String("user", spec.User), slog.Any("err", err))
		}
	} // else the manager says what is wrong with the user
	if len(b.rec.Env)+len(b.rec.OverEnv) > 0 {
		env := map[string]string{}
		for _, layer := range []map[string]string{b.rec.Env, b.rec.OverEnv, spec.Env} {
			maps.Copy(env, layer)
		}
		spec.Env = env
	}
	b.mu.Unlock()
	labels := map[string]string{}
	maps.Copy(labels, spec.Labels)
	labels[Label] = string(b.id)
	spec.Labels = labels
	return s.inner.Start(ctx, spec)
}

// Get finds a process of this sandbox.
func (s *scoped) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	s.box.touch()
	if sel.ID != "" {
		p, err := s.inner.Get(ctx, sel)
		if err != nil {
			return nil, err
		}
		info, err := p.Info(ctx)
		if err != nil {
			return nil, err
		}
		if !s.owns(&info) {
			return nil, process.ErrNotFound
		}
		return p, nil
	}
	// The machine's newest holder of a tag, name or pid may be another
	// sandbox's: look among our own.
	infos, err := s.List(ctx, process.Filter{})
	if err != nil {
		return nil, err
	}
	i, err := process.Resolve(sel, len(infos), func(i int) process.Names {
		in := &infos[i]
		return process.Names{ID: in.ID, PID: in.PID, Name: in.Spec.Name, Tag: in.Spec.Tag}
	}, func(i int) bool { return infos[i].Exit == nil })
	if err != nil {
		return nil, err
	}
	return s.inner.Get(ctx, process.Selector{ID: infos[i].ID})
}

func (s *scoped) owns(info *process.Info) bool {
	return info.Spec.Labels[Label] == string(s.box.id)
}

// List returns the processes of this sandbox.
func (s *scoped) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	labels := map[string]string{}
	maps.Copy(labels, f.Labels)
	labels[Label] = string(s.box.id)
	f.Labels = labels
	return s.inner.List(ctx, f)
}

// Watch reports the events of the processes of this sandbox.
func (s *scoped) Watch(ctx context.Context) (process.Watcher, error) {
	// First the watch, then the list: a process that starts in between is not missed.
	w, err := s.inner.Watch(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := s.List(ctx, process.Filter{})
	if err != nil {
		w.Close()
		return nil, err
	}
	own := map[process.ID]bool{}
	for _, info := range infos {
		own[info.ID] = true
	}
	return &watcher{Watcher: w, ctx: context.WithoutCancel(ctx), scope: s, own: own}, nil
}

// watcher leaves out what is not of the sandbox.
type watcher struct {
	process.Watcher
	ctx   context.Context // of the look-ups, which do not outlive Next
	scope *scoped
	own   map[process.ID]bool
}

func (w *watcher) Next() (process.Event, bool, error) {
	for {
		ev, ok, err := w.Watcher.Next()
		if !ok || err != nil {
			return ev, ok, err
		}
		if ev.Kind == process.EventStarted && !w.own[ev.ID] {
			_, err := w.scope.Get(w.ctx, process.Selector{ID: ev.ID})
			w.own[ev.ID] = err == nil
		}
		mine := w.own[ev.ID]
		if ev.Kind == process.EventRemoved || !mine {
			delete(w.own, ev.ID)
		}
		if mine {
			return ev, true, nil
		}
	}
}
