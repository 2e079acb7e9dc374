package work

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
)

// heldSet is what a model has changed, with what it is based on.
type heldSet struct {
	Changes []view.Change   `json:"changes"`
	Env     []view.Variable `json:"env,omitempty"`
	// Bases are the hashes of the files as they were; "": there was none.
	Bases map[string]string `json:"bases"`
	diff  string
}

// based adds a set that is about to become the project's, or would.
func (w *worker) based(ctx context.Context, to *heldSet, s *view.Set) error {
	if to.Bases == nil {
		to.Bases = map[string]string{}
	}
	to.diff += w.diffOf(ctx, s)
	for _, c := range s.Changes() {
		if _, ok := to.Bases[c.Path]; !ok && !dirChange(c) {
			sum, err := w.sumOf(ctx, c.Path)
			if err != nil {
				return err
			}
			to.Bases[c.Path] = sum
		}
		to.Changes = append(to.Changes, c)
	}
	to.Env = append(to.Env, s.Env...)
	return nil
}

func dirChange(c view.Change) bool { return c.Kind == view.Directory || c.Mode.IsDir() }

// sumOf is the hash of a file of the project; "": there is none.
func (w *worker) sumOf(ctx context.Context, name string) (string, error) {
	h := sha256.New()
	for off := int64(0); ; {
		data, size, err := w.project.ReadFile(ctx, name, off, project.MaxReviewed)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		h.Write(data)
		if off += int64(len(data)); off >= size || len(data) == 0 {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
	}
}

// keepHeld has a change wait for a person, and says so.
func (w *worker) keepHeld(set *heldSet, text, why string) string {
	data, err := json.Marshal(set)
	if err == nil {
		h := healer.Held{Hash: healer.HashOf(data), Why: w.redact.Text(why), Text: w.redact.Text(text), Set: data,
			Diff: project.Clipped(w.redact.Text(set.diff))}
		err = h.Write(w.order.Dir)
	}
	if err != nil {
		return "it could not be kept for you: " + err.Error()
	}
	return "The change waits for you: tend heal show " + w.order.ID
}

// held reads what this order is to apply.
func (w *worker) held() (h *healer.Held, set heldSet, err error) {
	h, err = healer.ReadHeld(w.heldDir())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, set, errors.New("the change is gone: it was applied or discarded, or its episode was removed")
	case err != nil:
		return nil, set, err
	case h.Hash != w.order.Hash || healer.HashOf(h.Set) != h.Hash:
		return nil, set, errors.New("the change is another one than that which was looked at")
	}
	d := json.NewDecoder(bytes.NewReader(h.Set))
	d.DisallowUnknownFields()
	if err := d.Decode(&set); err != nil {
		return nil, set, err
	}
	for _, v := range set.Env {
		w.redact.AddSecret(v.Name, v.Value)
	}
	return h, set, nil
}

func (w *worker) heldDir() string { return filepath.Join(filepath.Dir(w.order.Dir), w.order.Apply) }

// lookHeld finds out whether the change can be applied: its files are as they were. Where it cannot, there
// is no remedy, and the text says why.
func (w *worker) lookHeld(ctx context.Context) (out healer.Entry, err error) {
	if w.failed != "" {
		out.Text = w.failed
		return out, nil
	}
	_, set, err := w.held()
	if err != nil {
		out.Text = err.Error()
		return out, nil
	}
	changed, err := w.since(ctx, set)
	switch {
	case err != nil:
		return out, err
	case len(changed) > 0:
		out.Text, out.Changed = listed("nothing was applied, since files have changed that it is based on:", changed)
	default:
		if ev, err := w.evidence(ctx); err == nil {
			out.Cause = causeIn(ev.Log) // what it is to repair
		}
		out.Remedies = []healer.Remedy{{Kind: healer.Apply, Name: w.order.Apply, Why: "somebody has looked at it", Tree: true}}
	}
	return out, nil
}

// since are the files of a set that have changed since it was made.
func (w *worker) since(ctx context.Context, set heldSet) (all []checkpoint.Left, err error) {
	for _, c := range set.Changes {
		if dirChange(c) {
			continue
		}
		sum, err := w.sumOf(ctx, c.Path)
		switch {
		case err != nil && (ctx.Err() != nil || w.lost() != nil):
			return nil, err
		case err != nil: // it is a directory now, say
			all = append(all, checkpoint.Left{Path: c.Path, Reason: err.Error()})
		case sum != set.Bases[c.Path]:
			all = append(all, checkpoint.Left{Path: c.Path, Reason: "it has changed since"})
		}
	}
	return all, nil
}

// applyHeld makes the change the project's, and restarts the service on it.
func (w *worker) applyHeld(ctx context.Context) (out healer.Entry, err error) {
	h, set, err := w.held()
	if err != nil {
		return out, err
	}
	changed, err := w.since(ctx, set)
	if err != nil {
		return out, err
	}
	if len(changed) > 0 {
		text, _ := listed("nothing was applied, since files have changed that it is based on:", changed)
		return out, errors.New(text)
	}
	out.Text = h.Text
	if err := w.project.Apply(ctx, set.Changes); err != nil {
		return out, err
	}
	if err := w.setAll(ctx, set.Env); err != nil {
		return out, err
	}
	return out, w.restart(ctx)
}

// setAll sets variables.
func (w *worker) setAll(ctx context.Context, all []view.Variable) error {
	for _, one := range all {
		if err := w.own(ctx, func() error { return w.project.SetEnv(ctx, one.File, one.Name, one.Value) }); err != nil {
			return err
		}
	}
	return nil
}

// dropHeld removes what was applied.
func (w *worker) dropHeld() {
	if w.order.Apply != "" {
		_ = os.Remove(filepath.Join(w.heldDir(), healer.HeldFile)) // else it is refused: its files have changed
	}
}

// listed is a text with paths and reasons behind it, and the paths.
func listed(said string, all []checkpoint.Left) (text string, paths []string) {
	var b strings.Builder
	b.WriteString(said)
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
