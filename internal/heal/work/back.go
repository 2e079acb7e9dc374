package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// maxUndoFile is more than an Undo has as JSON.
const maxUndoFile = 2 * checkpoint.MaxUndo

// keepUndo keeps what a repair has changed, with what it was before: one that was not committed
// can be taken back by it, and it says why there is nothing.
func (w *worker) keepUndo(done *project.Committed) (string, error) {
	defer os.Remove(w.order.Path(healer.LiveFile))
	if done.Undo == nil {
		if done.NoUndo == "" || done.Hash != "" {
			return "", nil
		}
		return "it cannot be taken back later: " + done.NoUndo, nil
	}
	data, err := json.Marshal(done.Undo)
	if err != nil {
		return "", err
	}
	if len(data) > maxUndoFile {
		if done.Hash != "" {
			return "", nil
		}
		return "it cannot be taken back later: what it has changed is too much to be kept", nil
	}
	return "", atomicfile.Synced(w.order.Path(healer.UndoFile), data, 0o600)
}

// keepLive keeps what a remedy has changed until it is known what becomes of it, for those who
// compare files.
func (w *worker) keepLive(ctx context.Context, try int) {
	done, err := w.project.Commit(ctx, try, nil)
	if err != nil || done.Undo == nil {
		return
	}
	if data, err := json.Marshal(done.Undo); err == nil && len(data) <= maxUndoFile {
		_ = atomicfile.File(w.order.Path(healer.LiveFile), data, 0o600)
	}
}

// repair is what is taken back: as somebody has asked for, or since it has not lasted.
func (w *worker) repair() *healer.Back { return cmp.Or(w.order.Back, w.order.Last) }

// back says what is taken back.
func (w *worker) back() (checkpoint.Back, error) {
	o := w.repair()
	if o.Turn > 0 {
		return w.backTurn()
	}
	b := checkpoint.Back{
		Commit:   o.Commit,
		Message:  fmt.Sprintf("Take back the repair of %s\n\nIt was made by %s, in the commit %s.\n", w.order.Service, o.Episode, o.Commit),
		Trailers: map[string]string{"Heal-Id": o.Episode},
	}
	if o.Commit != "" {
		return b, nil
	}
	data, err := atomicfile.Read(o.Undo, maxUndoFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, errors.New("what the repair could be taken back by is gone: the newest 50 episodes are kept")
	}
	if err == nil {
		b.Undo = new(checkpoint.Undo)
		err = json.Unmarshal(data, b.Undo)
	}
	return b, err
}

// backTurn says what is taken back of a turn of a chat.
func (w *worker) backTurn() (b checkpoint.Back, err error) {
	t, err := chat.ReadTurn(w.repair().Undo)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b, errors.New("what the turn could be taken back by is gone: the newest 20 turns are kept, up to 64 MiB")
	case err != nil:
		return b, err
	case t.Why != "":
		return b, errors.New("the turn cannot be taken back: " + t.Why)
	case t.Root != w.project.Root():
		return b, fmt.Errorf("the turn cannot be taken back: its project was %s, and is %s by now", t.Root, w.project.Root())
	}
	b.Undo = t.Undo
	return b, nil
}

// laterTurns are those files of a turn that a later turn has changed, too.
func (w *worker) laterTurns(b checkpoint.Back) (all []checkpoint.Left, err error) {
	if w.repair().Turn == 0 {
		return nil, nil
	}
	dir := filepath.Dir(filepath.Dir(w.repair().Undo))
	for _, said := range chat.Turns(dir) {
		if said <= w.repair().Turn {
			continue
		}
		t, err := chat.ReadTurn(chat.TurnFile(dir, said))
		if err != nil {
			return nil, err
		}
		for _, path := range t.Undo.Paths() {
			if slices.Contains(b.Undo.Paths(), path) && !slices.ContainsFunc(all, func(l checkpoint.Left) bool { return l.Path == path }) {
				all = append(all, checkpoint.Left{Path: path, Reason: "a later turn of the chat has changed it, too: take that back first"})
			}
		}
	}
	return all, nil
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
		done.Changed, err = w.laterTurns(b)
	}
	if err == nil && len(done.Changed) == 0 {
		done, err = w.project.TakeBack(ctx, b, true)
	}
	switch {
	case ctx.Err() != nil || w.lost() != nil:
		return out, err
	case err != nil:
		out.Text = err.Error()
	case len(done.Changed) > 0:
		out.Text, out.Changed = w.changed(done.Changed)
	default:
		out.Remedies = []healer.Remedy{{Kind: healer.Undo, Name: w.repair().Episode, Why: "somebody asked for it"}}
		err := atomicfile.File(w.order.Path(healer.DiffFile), []byte(w.redact.Text(done.Diff)), 0o600)
		return out, err
	}
	return out, nil
}

// hasLasted reports whether the newest repair has, as far as that is known: its fault has not come
// back, or nothing can be taken back any more, since files have changed again.
func (w *worker) hasLasted(ctx context.Context, cause string) (bool, error) {
	last := w.order.Last
	plain := func(s string) string { return changing.ReplaceAllString(s[:min(len(s), 90)], "N") }
	if last == nil || cause == "" || plain(w.redact.Text(cause)) != plain(last.Cause) {
		return true, nil
	}
	out, err := w.lookBack(ctx)
	return len(out.Remedies) == 0, err
}

// changed says what keeps a repair from being taken back.
func (w *worker) changed(all []checkpoint.Left) (text string, paths []string) {
	return listed(fmt.Sprintf("nothing was taken back, since what %s has changed has changed again:", w.taken()), all)
}

// taken is what is taken back, in words.
func (w *worker) taken() string {
	if w.repair().Turn > 0 {
		return "the turn"
	}
	return "the repair"
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
		text, paths := w.changed(done.Changed)
		out.Changed = paths
		return out, errors.New(text)
	}
	out.Commit, out.Paths = done.Hash, done.Paths
	for _, l := range done.Left {
		out.Left = append(out.Left, l.Path+": "+l.Reason)
	}
	out.Text = "1 file is as it was before " + w.taken()
	if n := len(done.Paths); n != 1 {
		out.Text = fmt.Sprintf("%d files are as they were before %s", n, w.taken())
	}
	if err := w.restart(ctx); err != nil { // it may be down, or not be there any more
		out.Text += "; the service was not restarted: " + err.Error()
	} else {
		out.Text += ", and the service was restarted"
	}
	return out, nil
}
