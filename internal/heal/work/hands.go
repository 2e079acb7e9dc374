package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
)

// hands are what a model acts with. In an attempt all that it changes is in a set, which nobody has
// before it is proved; in a chat each call changes the project, under the guards.
type hands struct {
	ctx context.Context // of the attempt: nothing of it outlasts that
	w   *worker
	set *view.Set // nil: it is a chat
	// unproved is why nothing can be proved in a view; "": it can.
	unproved string
	// applied: the set has become the project's, which it does before packages are installed by it.
	applied bool
	// try is the number of the attempt, from 1. installed: its packages were installed, which said
	// tells, or failed.
	try       int
	installed bool
	said      string
	failed    error
	log       string // of the service, since the newest restart by the model
}

var _ agent.Hands = (*hands)(nil)

// key is the path of a file in the set.
func (h *hands) key(name string) string {
	if filepath.IsAbs(name) {
		if rel, err := filepath.Rel(h.w.project.Root(), name); err == nil {
			name = rel
		}
	}
	return path.Clean(filepath.ToSlash(name))
}

func (h *hands) changed(name string) (view.Change, bool) {
	if h.set == nil {
		return view.Change{}, false
	}
	return h.set.Of(h.key(name))
}

func (h *hands) ReadFile(name string, off, most int64) ([]byte, int64, error) {
	switch c, ok := h.changed(name); {
	case !ok:
		return h.w.project.ReadFile(h.ctx, name, off, most)
	case c.Kind != view.File:
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	default:
		size := int64(len(c.Data))
		off = min(max(off, 0), size)
		return c.Data[off:min(size, off+most)], size, nil
	}
}

// own makes what a function does the healer's.
func (w *worker) own(ctx context.Context, f func() error) error {
	if err := w.project.Absorb(ctx); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, w.project.Mark(ctx))
}

func (h *hands) WriteFile(name string, data []byte) error {
	if h.set == nil {
		return h.w.own(h.ctx, func() error { return h.w.project.WriteFile(h.ctx, name, data) })
	}
	at, err := h.w.project.Editable(h.ctx, name)
	if err == nil {
		c, _ := h.set.Of(at)
		h.set.Put(view.Change{Path: at, Kind: view.File, Mode: c.Mode, Data: data})
	}
	return err
}

func (h *hands) List(dir string, most int) ([]agent.File, bool, error) {
	at := h.key(dir)
	all, more, err := h.w.project.List(h.ctx, dir, most)
	sizes := map[string]agent.File{}
	for _, e := range all {
		p := path.Join(filepath.ToSlash(dir), e.Name)
		sizes[h.key(p)] = agent.File{Path: p, Dir: e.Kind == "directory", Size: e.Size}
	}
	if h.set != nil {
		for _, c := range h.set.Changes() {
			rest, ok := strings.CutPrefix(c.Path, at+"/")
			if at == "." {
				rest, ok = c.Path, true
			}
			name, _, deep := strings.Cut(rest, "/")
			switch p := path.Join(at, name); {
			case !ok:
				continue
			case c.Kind == view.Gone && !deep:
				delete(sizes, p)
				continue
			case c.Kind == view.Gone:
				continue
			case deep || c.Kind == view.Directory:
				sizes[p] = agent.File{Path: path.Join(filepath.ToSlash(dir), name), Dir: true}
			default:
				sizes[p] = agent.File{Path: path.Join(filepath.ToSlash(dir), name), Size: int64(len(c.Data))}
			}
			err = nil
		}
	}
	files := make([]agent.File, 0, len(sizes))
	for _, f := range sizes {
		files = append(files, f)
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	return files, more, err
}

func (h *hands) Search(ctx context.Context, re, glob string, most int) ([]agent.Hit, bool, error) {
	all, more, err := h.w.project.Search(ctx, re, glob, most)
	if err != nil {
		return nil, false, err
	}
	var hits []agent.Hit
	for _, one := range all {
		if _, ok := h.changed(one.Path); !ok {
			hits = append(hits, agent.Hit{Path: one.Path, Line: one.Line, Text: one.Text})
		}
	}
	if h.set == nil {
		return hits, more, nil
	}
	compiled, err := regexp.Compile(re) // Search has taken it
	if err != nil {
		return nil, false, err
	}
	if glob != "" && !strings.Contains(glob, "/") {
		glob = "**/" + glob
	}
	for _, c := range h.set.Changes() {
		if c.Kind != view.File || glob != "" && !doublestar.MatchUnvalidated(glob, c.Path) {
			continue
		}
		for n, line := range strings.Split(string(c.Data), "\n") {
			if compiled.MatchString(line) {
				hits = append(hits, agent.Hit{Path: c.Path, Line: n + 1, Text: line})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b agent.Hit) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return hits[:min(len(hits), most)], more || len(hits) > most, nil
}

// apply makes what is in a set the project's.
func (h *hands) apply(ctx context.Context, s *view.Set) error {
	w := h.w
	if err := w.based(ctx, &w.applied, s); err != nil {
		return err
	}
	if err := w.project.Apply(ctx, s.Changes()); err != nil {
		return err
	}
	if err := w.setAll(ctx, s.Env); err != nil {
		return err
	}
	*s, h.applied = view.Set{}, true
	return w.dropView(ctx)
}

func (h *hands) Restart(ctx context.Context) (agent.Restarted, error) {
	w := h.w
	if h.set == nil {
		return h.restartIt(ctx, "")
	}
	if h.unproved != "" {
		return agent.Restarted{}, fmt.Errorf("the service cannot be started with what you change, which is only proposed to people: %s. "+
			"Finish when the change is whole", h.unproved)
	}
	v, _, err := w.openView(ctx)
	if err != nil {
		return agent.Restarted{}, err
	}
	out, err := w.prove(ctx, v, h.set, false)
	if err != nil {
		return agent.Restarted{}, err
	}
	if !out.Well {
		done, ierr := h.install(ctx, out)
		switch {
		case done:
			if out, err = w.prove(ctx, v, h.set, false); err != nil {
				return agent.Restarted{}, err
			}
		case ierr != nil && ierr != h.failed:
			return agent.Restarted{}, ierr
		}
	}
	h.log = out.Log
	r := agent.Restarted{Healthy: out.Well, Message: out.Why, Log: out.Log}
	if h.failed != nil {
		r.Message = h.failed.Error() + "\nNothing is installed again in this attempt. Call finish, and say what is wrong with it.\n" + r.Message
	} else if h.said != "" {
		r.Message = strings.TrimSpace(h.said + "\n" + r.Message)
	}
	return r, nil
}

// restartIt restarts the service itself, for a person who is there.
func (h *hands) restartIt(ctx context.Context, said string) (agent.Restarted, error) {
	w := h.w
	if err := w.restart(ctx); err != nil {
		return agent.Restarted{}, err
	}
	_, err := w.awaitReady(ctx, restartTime)
	log, _, lerr := w.log(ctx)
	if lerr != nil {
		return agent.Restarted{}, lerr
	}
	h.log = log
	if err != nil {
		if _, ok := errors.AsType[*unwell](err); !ok {
			return agent.Restarted{}, err
		}
		return agent.Restarted{Message: strings.TrimSpace(said + "\n" + err.Error()), Log: log}, nil
	}
	return agent.Restarted{Healthy: true, Message: said, Log: log}, nil
}

// settle proves what an attempt has changed in a view, and judges it, makes it the project's, and
// restarts the service on it.
func (h *hands) settle(ctx context.Context, summary string) error {
	w := h.w
	if h.failed != nil {
		return h.failed
	}
	if !h.set.Empty() {
		v, _, err := w.openView(ctx)
		if err != nil {
			return err
		}
		out, err := w.prove(ctx, v, h.set, true)
		if err != nil {
			return err
		}
		if !out.Well {
			done, err := h.install(ctx, out)
			if err == nil && done {
				if v, _, err = w.openView(ctx); err == nil {
					out, err = w.prove(ctx, v, h.set, true)
				}
			}
			if err == nil && !out.Well {
				w.keepDiff(h.try, w.diffOf(ctx, h.set))
				err = reason("in a view of the project: "+out.Why, causeIn(out.Log))
			}
			if err != nil {
				return err
			}
		}
		if err := h.judge(ctx, summary); err != nil {
			return err
		}
		if err := h.apply(ctx, h.set); err != nil {
			return err
		}
	}
	return w.restart(ctx)
}

// judge says why what is proved is not for the project.
func (h *hands) judge(ctx context.Context, summary string) error {
	w := h.w
	files, err := w.project.Preview(ctx, h.set.Changes())
	if err != nil {
		return err
	}
	before := w.applied
	if err := w.based(ctx, &before, h.set); err != nil {
		return err
	}
	w.verdict, err = w.judge(ctx, files, &before, w.keepDiff(h.try, before.diff), summary)
	w.judged = err == nil
	return err
}

func (h *hands) setEnv(ctx context.Context, name, value string) (keys []string, err error) {
	h.w.redact.AddSecret(name, value)
	if h.set != nil {
		if err = h.w.project.CheckEnv(ctx, project.EnvFile, name, value); err == nil {
			h.set.Env = slices.DeleteFunc(h.set.Env, func(v view.Variable) bool { return v.Name == name })
			h.set.Env = append(h.set.Env, view.Variable{File: project.EnvFile, Name: name, Value: value})
		}
		for _, v := range h.set.Env {
			keys = append(keys, v.Name)
		}
	} else {
		err = h.w.own(ctx, func() error { return h.w.project.SetEnv(ctx, project.EnvFile, name, value) })
	}
	// The guard shows the names alone.
	data, _, rerr := h.w.project.ReadFile(ctx, project.EnvFile, 0, project.MaxReviewed)
	if rerr == nil {
		for line := range strings.Lines(string(data)) {
			if key, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok && !strings.HasPrefix(key, "#") {
				keys = append(keys, strings.TrimSpace(key))
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}
