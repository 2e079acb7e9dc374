package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/healer"
	"github.com/tend-run/tend/healer/agent"
	"github.com/tend-run/tend/healer/checkpoint"
	"github.com/tend-run/tend/internal/replace"
)

func (w *worker) pointOptions(try int) checkpoint.Options {
	o := w.order
	id := fmt.Sprintf("%s-%d", o.ID, try)
	return checkpoint.Options{Root: o.Healer.Root, Dir: filepath.Join(o.Path(healer.PointsDir), fmt.Sprint(try)), ID: id, Skip: []string{o.StateDir}, Leave: o.Healer.Data}
}

// takePoint keeps the tree as it is.
func (w *worker) takePoint(ctx context.Context, try int) error {
	p, err := checkpoint.Open(ctx, w.pointOptions(try))
	if errors.Is(err, checkpoint.ErrNone) {
		p, err = checkpoint.Take(ctx, w.pointOptions(try))
	}
	w.point = p
	if err != nil {
		w.point = nil
	}
	return err
}

// openPoint returns the checkpoint of a remedy, which a worker before this one may have
// taken.
func (w *worker) openPoint(ctx context.Context, try int) (*checkpoint.Point, error) {
	if w.point == nil {
		p, err := checkpoint.Open(ctx, w.pointOptions(try))
		if err != nil {
			return nil, err
		}
		w.point = p
	}
	return w.point, nil
}

// mark says that what has changed is the healer's, absorb that it is not: before each act
// of the healer what has changed is the user's, or the service's.
func (w *worker) mark(ctx context.Context) error {
	if w.point == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	return w.point.Mark(ctx)
}

func (w *worker) absorb(ctx context.Context) error {
	if w.point == nil {
		return nil
	}
	return w.point.Absorb(ctx)
}

// changed are the paths that the healer has changed.
func (w *worker) changed(ctx context.Context) (paths []string, err error) {
	changes, err := w.point.Changes(ctx)
	for _, c := range changes {
		paths = append(paths, c.Path)
	}
	return paths, err
}

// reviewed finds out whether a change only silences the symptom.
func (w *worker) reviewed(ctx context.Context, e healer.Effect) (string, error) {
	p, err := w.openPoint(ctx, e.Try)
	if err != nil {
		return "", err
	}
	if err := p.Absorb(ctx); err != nil { // what the service has written since is its own
		return "", err
	}
	diff, err := p.Diff(ctx)
	if err != nil {
		return "", err
	}
	diff = w.redact.Text(diff)
	if err := replace.File(w.order.Path(healer.DiffFile), []byte(diff), 0o600); err != nil {
		return "", err
	}
	if e.Remedy.Kind != healer.Model { // a playbook is a rule by itself
		return "", nil
	}
	changes, err := p.Changes(ctx)
	if err != nil {
		return "", err
	}
	if len(changes) == 0 {
		return "nothing was changed", nil
	}
	for _, c := range changes {
		// Nothing but SetEnv has a way to a .env.
		if _, err := w.guard.Check(c.Path, true); err != nil && c.Path != envFile {
			return "", fmt.Errorf("what must not be changed was: %w", err)
		}
	}
	if bad := agent.Suspicious(w.fileDiffs(ctx, p, changes)); len(bad) > 0 {
		return "", fmt.Errorf("it only hides what is wrong: %s", strings.Join(bad, "; "))
	}
	if w.review == nil {
		return "", nil
	}
	v, err := agent.Review(ctx, w.review, diff, w.redact.Text(signalText(&w.state)))
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "the second look was not possible: " + err.Error(), nil
	case v.Symptom:
		return "", fmt.Errorf("it only hides what is wrong: %s", v.Reason)
	}
	return v.Reason, nil
}

// fileDiffs are the changes with all that the rules look at.
func (w *worker) fileDiffs(ctx context.Context, p *checkpoint.Point, changes []checkpoint.Change) (all []agent.FileDiff) {
	for _, c := range changes {
		d := agent.FileDiff{Path: c.Path, Added: c.Kind == checkpoint.Added, Deleted: c.Kind == checkpoint.Deleted, Dirty: c.Dirty, AtHead: c.AtHead}
		if before, err := p.Before(ctx, c.Path); err == nil {
			d.Before = text(before)
		}
		if !d.Deleted {
			if now, err := replace.Read(filepath.Join(w.order.Healer.Root, filepath.FromSlash(c.Path)), maxReviewed); err == nil {
				d.After = text(now)
			}
		}
		all = append(all, d)
	}
	return all
}

const maxReviewed = 1 << 20

// text is what is text, of a size that rules look at.
func text(data []byte) string {
	if len(data) > maxReviewed || strings.IndexByte(string(data), 0) >= 0 {
		return ""
	}
	return string(data)
}

// commit makes a commit of what has helped. It is not made twice: what is in it already is
// no change any more.
func (w *worker) commit(ctx context.Context, e healer.Effect) (out healer.Entry, err error) {
	p, err := w.openPoint(ctx, e.Try)
	if errors.Is(err, checkpoint.ErrNone) {
		return healer.Entry{Text: "it was committed before"}, nil
	}
	if err != nil {
		return out, err
	}
	for _, k := range p.Kept() {
		out.Left = append(out.Left, k.Path+": your uncommitted version, before a command changed it, is in "+k.Copy)
	}
	if !w.order.Healer.Commit {
		out.Left = append(out.Left, "all: healer.commit is false")
		return out, nil
	}
	t := &w.state.Tries[len(w.state.Tries)-1]
	if err := p.Absorb(ctx); err != nil {
		return out, err
	}
	done, err := p.Commit(ctx, checkpoint.Commit{
		Message:  w.redact.Text(message(w.order.Service, t)),
		Trailers: map[string]string{"Heal-Id": w.order.ID, "Signal": w.order.Signal.Kind, "Attempt": fmt.Sprint(e.Try)},
		Overlap:  true, // a line that the healer had to change is its own
	})
	for _, l := range done.Left {
		out.Left = append(out.Left, l.Path+": "+l.Reason)
	}
	out.Commit, out.Paths = done.Hash, done.Paths
	return out, err
}

// message is that of a commit.
func message(service string, t *healer.Try) string {
	subject := "Repair " + service
	if t.Kind == healer.Book {
		return subject + " by the playbook " + t.Name + "\n\n" + t.Why + "\n"
	}
	text := strings.TrimSpace(t.Text)
	first, rest, _ := strings.Cut(text, "\n")
	if first = strings.TrimSpace(first); first == "" {
		return subject + "\n"
	}
	if len(first) > 72 {
		return subject + "\n\n" + text + "\n"
	}
	return first + "\n\n" + strings.TrimSpace(rest) + "\n"
}

// rollback takes back what was tried, and restarts the service on what was before.
func (w *worker) rollback(ctx context.Context, e healer.Effect) (string, error) {
	w.killCommands(ctx)
	p, err := w.openPoint(ctx, e.Try)
	if errors.Is(err, checkpoint.ErrNone) { // it goes once all is as it was
		return "it was taken back before", nil
	}
	if err != nil {
		return "", err
	}
	if t := w.state.Tries[len(w.state.Tries)-1]; t.Failed != healer.Killed {
		if err := p.Absorb(ctx); err != nil {
			return "", err
		}
	}
	if diff, err := p.Diff(ctx); err == nil && diff != "" {
		_ = replace.File(w.order.Path(fmt.Sprintf("attempt-%d.diff", e.Try)), []byte(w.redact.Text(diff)), 0o600) // for people
	}
	moved := w.moveBack(e.Try)
	done, err := p.Restore(ctx)
	if err != nil {
		return "", errors.Join(moved, err)
	}
	if moved != nil { // a directory that it has to be in may be there again
		if err := w.moveBack(e.Try); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d files are as they were", len(done.Paths))
	for _, k := range done.Kept {
		fmt.Fprintf(&b, "\n%s was changed by somebody else meanwhile; that is in %s", k.Path, k.Copy)
	}
	if len(done.Left) > 0 {
		var left []string
		for _, l := range done.Left {
			left = append(left, l.Path+": "+l.Reason)
		}
		return b.String(), fmt.Errorf("not all could be taken back: %s", strings.Join(left, "; "))
	}
	_ = os.Remove(w.order.Path(healer.DiffFile))
	_ = p.Drop(ctx) // what is left is removed with the episode
	w.point = nil
	if len(done.Paths) > 0 {
		if err := w.restart(ctx); err != nil && ctx.Err() == nil {
			b.WriteString("\n" + err.Error()) // the supervisor starts it in any case
		}
	}
	return b.String(), nil
}
