package work

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/heal/playbook"
)

// A model that repairs a manifest or a lock file cannot install by it: its commands have no
// network, and of what they install nothing is taken over. The books can, and were matched
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
// manifest or a lock file: once, as a part of the attempt, with which it is taken back. It is
// for a service that was restarted since, and fails. done: it was restarted again, on what is
// installed now.
func (h *hands) install(ctx context.Context) (done bool, err error) {
	w := h.w
	if h.try == 0 || h.installed { // in a chat there is no attempt
		return false, nil
	}
	paths, err := w.project.Changed(ctx)
	if err != nil || !slices.ContainsFunc(paths, playbook.Manifest) {
		return false, err
	}
	plan, ok, err := w.installs(ctx)
	if err != nil || !ok {
		return false, err
	}
	h.installed = true
	h.said = plan.Book + ": " + plan.Why
	w.note("a package manager installs what the attempt has declared: " + h.said)
	var text string
	err = h.own(ctx, func() (err error) {
		text, err = w.carryOut(ctx, h.try, plan)
		return err
	})
	h.said = strings.TrimSpace(h.said + "\n" + text)
	if err != nil {
		// What was installed before is aside by now: only the end of the attempt brings it back.
		h.failed = fmt.Errorf("%s has not succeeded: %w", plan.Book, err)
		return false, h.failed
	}
	if err := w.restart(ctx); err != nil {
		return false, err
	}
	h.restarted, h.touched = true, false
	return true, nil
}

// settle does so at the end of an attempt, after which the service was restarted, if it is
// not well.
func (h *hands) settle(ctx context.Context, changed []string) error {
	if h.installed || !slices.ContainsFunc(changed, playbook.Manifest) {
		return h.failed
	}
	if _, err := h.w.soon(ctx); err != nil {
		return err
	}
	s, err := h.w.service(ctx)
	if err != nil || s.Ready && s.Failures == 0 {
		return err
	}
	_, err = h.install(ctx)
	return err
}
