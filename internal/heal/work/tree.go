package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// reviewed finds out whether a change only silences the symptom.
func (w *worker) reviewed(ctx context.Context, e healer.Effect) (string, error) {
	r, err := w.project.Review(ctx, e.Try)
	if err != nil {
		return "", err
	}
	diff := w.redact.Text(r.Diff)
	if err := atomicfile.File(w.order.Path(healer.DiffFile), []byte(diff), 0o600); err != nil {
		return "", err
	}
	switch {
	case e.Remedy.Kind != healer.Model: // a playbook is a rule by itself
		return "", nil
	case len(r.Files) == 0:
		return "nothing was changed", nil
	case r.Denied != "":
		return "", fmt.Errorf("what must not be changed was: %s", r.Denied)
	}
	return w.judge(ctx, r.Files, &w.applied, diff, w.state.Tries[len(w.state.Tries)-1].Text)
}

// suspect is what the rules say against a change by a model: set waits for a person then, if there is
// one: a worker that goes on for a killed one has none.
func (w *worker) suspect(files []agent.FileDiff, set *heldSet, summary string) error {
	for i := range files {
		f := &files[i]
		f.Named = namedLines(w.erred, w.project.Root(), f.Path, f.Before)
	}
	if bad := agent.Suspicious(files); len(bad) > 0 {
		return w.hides(strings.Join(bad, "; "), set, summary)
	}
	return nil
}

func (w *worker) hides(why string, set *heldSet, summary string) error {
	why = "it only hides what is wrong: " + why
	if set != nil && set.Bases != nil {
		return fmt.Errorf("%s. %s", why, w.keepHeld(set, summary, why))
	}
	return errors.New(why)
}

// judge finds out whether a change by a model only silences the symptom.
func (w *worker) judge(ctx context.Context, files []agent.FileDiff, set *heldSet, diff, summary string) (string, error) {
	if err := w.suspect(files, set, summary); err != nil {
		return "", err
	}
	if w.review == nil || w.judged {
		return w.verdict, nil
	}
	v, err := agent.Review(ctx, w.review, diff, w.redact.Text(signalText(&w.state)))
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "the second look was not possible: " + err.Error(), nil
	case v.Symptom:
		return "", w.hides(v.Reason, set, summary)
	}
	return v.Reason, nil
}

// commit makes a commit of what has helped. It is not made twice: what is in it already is
// no change any more.
func (w *worker) commit(ctx context.Context, e healer.Effect) (out healer.Entry, err error) {
	defer w.dropHeld()
	var what *checkpoint.Commit
	if t := &w.state.Tries[len(w.state.Tries)-1]; w.order.Healer.Commit {
		what = &checkpoint.Commit{
			Message:  w.redact.Text(message(w.order.Service, t)),
			Trailers: map[string]string{"Heal-Id": w.order.ID, "Signal": w.order.Signal.Kind, "Attempt": fmt.Sprint(e.Try)},
			Overlap:  true, // a line that the healer had to change is its own
		}
	}
	done, err := w.project.Commit(ctx, e.Try, what)
	for _, k := range done.Kept {
		out.Left = append(out.Left, k.Path+": your uncommitted version, before a command changed it, is in "+w.where(k.Copy))
	}
	if err == nil && !done.None {
		text, kerr := w.keepUndo(&done)
		if done.Hash == "" { // else it is only for those who compare
			out.Text, err = text, kerr
		}
	}
	switch {
	case err == nil && done.None:
		return healer.Entry{Text: "it was committed before"}, nil
	case err == nil && what == nil:
		out.Left = append(out.Left, "all: healer.commit is false")
		return out, nil
	}
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
	if err := w.killCommands(ctx); err != nil {
		return "", err
	}
	// Of an attempt whose worker was killed nobody knows what is the healer's: all is.
	absorb := w.state.Tries[len(w.state.Tries)-1].Failed != healer.Killed
	done, err := w.project.Rollback(ctx, e.Try, absorb)
	if done.Diff != "" {
		_ = atomicfile.File(w.order.Path(healer.TakenBackFile(e.Try)), []byte(w.redact.Text(done.Diff)), 0o600) // for people
	}
	switch {
	case err != nil:
		return "", err
	case done.None: // it goes once all is as it was
		return "it was taken back before", nil
	}
	var b strings.Builder
	if n := len(done.Paths); n == 1 {
		b.WriteString("1 file is as it was")
	} else {
		fmt.Fprintf(&b, "%d files are as they were", n)
	}
	for _, k := range done.Kept {
		fmt.Fprintf(&b, "\n%s was changed by somebody else meanwhile; that is in %s", k.Path, w.where(k.Copy))
	}
	if len(done.Left) > 0 {
		var left []string
		for _, l := range done.Left {
			left = append(left, l.Path+": "+l.Reason)
		}
		return b.String(), fmt.Errorf("not all could be taken back: %s", strings.Join(left, "; "))
	}
	_ = os.Remove(w.order.Path(healer.DiffFile))
	_ = os.Remove(w.order.Path(healer.LiveFile))
	w.drop(ctx, e.Try)
	if len(done.Paths) > 0 {
		if err := w.restart(ctx); err != nil && ctx.Err() == nil {
			b.WriteString("\n" + err.Error()) // the supervisor starts it in any case
		}
	}
	return b.String(), nil
}
