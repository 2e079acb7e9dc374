package work

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/heal/playbook"
)

// A model that repairs a manifest or a lock file cannot install by it: a view has no
// network, and of what is installed there nothing is taken over. The books can, and were matched
// before the file could be read.

// installs returns the plan by which what is missing now is installed.
func (w *worker) installs(ctx context.Context) (playbook.Plan, bool, error) {
	ev, err := w.evidence(ctx)
	if err != nil {
		return playbook.Plan{}, false, err
	}
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
// manifest or a lock file: once, as a part of the attempt, with which it is taken back. No view has a
// network, so the set becomes the project's first. It is for a service that has failed in a view on
// the set. done: what is missing is installed now.
func (h *hands) install(ctx context.Context) (done bool, err error) {
	w := h.w
	if h.installed || !slices.ContainsFunc(h.set.Paths(), playbook.Manifest) {
		return false, nil
	}
	if err := h.apply(ctx); err != nil {
		return false, err
	}
	if err := w.restart(ctx); err != nil {
		return false, err
	}
	if up, err := w.soon(ctx); err != nil || up {
		return up, err
	}
	plan, ok, err := w.installs(ctx)
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
	return true, nil
}
