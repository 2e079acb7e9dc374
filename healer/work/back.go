package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tend-run/tend/healer"
	"github.com/tend-run/tend/healer/checkpoint"
	"github.com/tend-run/tend/healer/project"
	"github.com/tend-run/tend/internal/replace"
)

// maxUndoFile is more than an Undo has as JSON.
const maxUndoFile = 2 * checkpoint.MaxUndo

// keepUndo keeps what a repair can be taken back by that was not committed. It says why
// there is nothing.
func (w *worker) keepUndo(done *project.Committed) (string, error) {
	if done.Undo == nil {
		if done.NoUndo == "" {
			return "", nil
		}
		return "it cannot be taken back later: " + done.NoUndo, nil
	}
	data, err := json.Marshal(done.Undo)
	if err != nil {
		return "", err
	}
	if len(data) > maxUndoFile {
		return "it cannot be taken back later: what it has changed is too much to be kept", nil
	}
	return "", replace.Synced(w.order.Path(healer.UndoFile), data, 0o600)
}

// back says what is taken back.
func (w *worker) back() (checkpoint.Back, error) {
	o := w.order.Back
	b := checkpoint.Back{
		Commit:   o.Commit,
		Message:  fmt.Sprintf("Take back the repair of %s\n\nIt was made by %s, in the commit %s.\n", w.order.Service, o.Episode, o.Commit),
		Trailers: map[string]string{"Heal-Id": o.Episode},
	}
	if o.Commit != "" {
		return b, nil
	}
	data, err := replace.Read(o.Undo, maxUndoFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, errors.New("what the repair could be taken back by is gone: the newest 50 episodes are kept")
	}
	if err == nil {
		b.Undo = new(checkpoint.Undo)
		err = json.Unmarshal(data, b.Undo)
	}
	return b, err
}

// lookBack finds out whether the repair can be taken back. Where it cannot, there is no
// remedy, and the text says why.
func (w *worker) lookBack(ctx context.Context) (out healer.Entry, err error) {
	if w.failed != "" {
		out.Text = w.failed
		return out, nil
	}
	b, err := w.back()
	var done checkpoint.TakenBack
	if err == nil {
		done, err = w.project.TakeBack(ctx, b, true)
	}
	switch {
	case ctx.Err() != nil || w.lost() != nil:
		return out, err
	case err != nil:
		out.Text = err.Error()
	case len(done.Changed) > 0:
		out.Text, out.Changed = changed(done.Changed)
	default:
		out.Remedies = []healer.Remedy{{Kind: healer.Undo, Name: w.order.Back.Episode, Why: "somebody asked for it"}}
		err := replace.File(w.order.Path(healer.DiffFile), []byte(w.redact.Text(done.Diff)), 0o600)
		return out, err
	}
	return out, nil
}

// changed says what keeps a repair from being taken back.
func changed(all []checkpoint.Left) (text string, paths []string) {
	var b strings.Builder
	b.WriteString("nothing was taken back, since what the repair has changed has changed again:")
	for i, l := range all {
		if paths = append(paths, l.Path); i < 20 {
			fmt.Fprintf(&b, "\n%s: %s", l.Path, l.Reason)
		}
	}
	if n := len(all) - 20; n > 0 {
		fmt.Fprintf(&b, "\n… and %d more", n)
	}
	return b.String(), paths
}

// takeBack takes the repair back, and restarts the service on what is there then.
func (w *worker) takeBack(ctx context.Context) (out healer.Entry, err error) {
	b, err := w.back()
	if err != nil {
		return out, err
	}
	done, err := w.project.TakeBack(ctx, b, false)
	if err != nil {
		return out, err
	}
	if len(done.Changed) > 0 {
		text, paths := changed(done.Changed)
		out.Changed = paths
		return out, errors.New(text)
	}
	out.Commit, out.Paths = done.Hash, done.Paths
	for _, l := range done.Left {
		out.Left = append(out.Left, l.Path+": "+l.Reason)
	}
	out.Text = "1 file is as it was before the repair"
	if n := len(done.Paths); n != 1 {
		out.Text = fmt.Sprintf("%d files are as they were before the repair", n)
	}
	if err := w.restart(ctx); err != nil { // it may be down, or not be there any more
		out.Text += "; the service was not restarted: " + err.Error()
	} else {
		out.Text += ", and the service was restarted"
	}
	return out, nil
}
