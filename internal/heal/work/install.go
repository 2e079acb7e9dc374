package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
)

// A model that repairs a manifest or a lock file cannot install by it: a view has no
// network, and of what is installed there nothing is taken over. The books can, and were matched
// before the file could be read.

// installs returns the plan by which what a run in a view has missed is installed.
func (w *worker) installs(ctx context.Context, out view.Outcome) (playbook.Plan, bool, error) {
	ev, err := w.evidence(ctx)
	if err != nil {
		return playbook.Plan{}, false, err
	}
	ev.Signal, ev.Log, ev.Exit = "exit", out.Log, out.Exit
	plans, err := w.project.Match(ctx, ev)
	if err != nil {
		return playbook.Plan{}, false, err
	}
	if i := slices.IndexFunc(plans, playbook.Plan.Installs); i >= 0 {
		return plans[i], true, nil
	}
	return playbook.Plan{}, false, nil
}

// install carries out a book that installs what is missing, if the attempt has changed a
// manifest or a lock file: once, as a part of the attempt, with which it is taken back. It is for a
// service that has failed in a view on the set. No view has a network, so those files become the
// project's first, and no others: what a model wrote runs in views alone until it is proved.
// done: what is missing is installed now, and the rest of the set can be tried again.
func (h *hands) install(ctx context.Context, out view.Outcome) (done bool, err error) {
	w := h.w
	if h.installed || !slices.ContainsFunc(h.set.Paths(), playbook.Manifest) {
		return false, nil
	}
	var files view.Set
	rest := view.Set{Env: h.set.Env}
	for _, c := range h.set.Changes() {
		if !playbook.Manifest(c.Path) || c.Kind == view.Directory {
			rest.Put(c)
			continue
		}
		if err := h.sameScripts(ctx, c); err != nil {
			return false, err
		}
		files.Put(c)
	}
	found, err := w.project.Preview(ctx, files.Changes())
	if err == nil {
		err = w.suspect(found, nil, "")
	}
	if err == nil {
		err = h.apply(ctx, &files)
	}
	if err != nil {
		return false, err
	}
	*h.set = rest
	plan, ok, err := w.installs(ctx, out)
	if err != nil || !ok {
		return false, err
	}
	h.installed = true
	h.said = plan.Book + ": " + plan.Why
	w.note("a package manager installs what the attempt has declared: " + h.said)
	var text string
	err = w.own(ctx, func() (err error) {
		text, err = w.carryOut(ctx, h.try, plan)
		return err
	})
	h.said = strings.TrimSpace(h.said + "\n" + text)
	if err != nil {
		// What was installed before is aside by now: only the end of the attempt brings it back.
		h.failed = fmt.Errorf("%s has not succeeded: %w", plan.Book, err)
		return false, h.failed
	}
	return true, w.dropView(ctx)
}

// sameScripts refuses a manifest by which a package manager would run what a model wrote, with all rights.
func (h *hands) sameScripts(ctx context.Context, c view.Change) error {
	if path.Base(c.Path) != "package.json" {
		return nil
	}
	old, _, err := h.w.project.ReadFile(ctx, c.Path, 0, project.MaxReviewed)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var is struct{ Scripts map[string]json.RawMessage }
	if err := json.Unmarshal(c.Data, &is); err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	for name, script := range is.Scripts { // what was there before may be no JSON, which is what was wrong
		if !bytes.Contains(old, script) || !bytes.Contains(old, []byte(strconv.Quote(name))) {
			return fmt.Errorf("nothing is installed by %s before it is proved, for its script %s is new: change its scripts, or its packages",
				c.Path, name)
		}
	}
	return nil
}
