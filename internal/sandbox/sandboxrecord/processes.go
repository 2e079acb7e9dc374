package sandboxrecord

import (
	"context"
	"maps"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// Entrance is where processes of one sandbox start.
type Entrance interface {
	// Enter is called before each start, and fills in what the spec lacks. leave is
	// called when the start is over, whatever came of it.
	Enter(ctx context.Context, spec *process.Spec) (leave func(), err error)
	// Touch notes that the sandbox is used.
	Touch()
}

// Processes returns those of one sandbox, out of all that inner has.
func Processes(inner process.Manager, id driver.ID, e Entrance) process.Manager {
	return &scoped{inner: inner, id: string(id), entrance: e}
}

type scoped struct {
	inner    process.Manager
	id       string
	entrance Entrance
}

var _ process.Manager = (*scoped)(nil)

// Start fills in what the sandbox gives and marks the process as its own.
func (s *scoped) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	s.entrance.Touch()
	leave, err := s.entrance.Enter(ctx, &spec)
	if err != nil {
		return nil, err
	}
	defer leave()
	labels := map[string]string{}
	maps.Copy(labels, spec.Labels)
	labels[process.LabelSandbox] = s.id
	spec.Labels = labels
	return s.inner.Start(ctx, spec)
}

// Get finds a process of this sandbox.
func (s *scoped) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	s.entrance.Touch()
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
		return process.NamesOf(infos[i].ID, infos[i].PID, &infos[i].Spec)
	}, func(i int) bool { return infos[i].Exit == nil })
	if err != nil {
		return nil, err
	}
	return s.inner.Get(ctx, process.Selector{ID: infos[i].ID})
}

func (s *scoped) owns(info *process.Info) bool {
	return info.Spec.Labels[process.LabelSandbox] == s.id
}

// List returns the processes of this sandbox.
func (s *scoped) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	labels := map[string]string{}
	maps.Copy(labels, f.Labels)
	labels[process.LabelSandbox] = s.id
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
