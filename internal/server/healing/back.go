package healing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// RollBack takes back the changes of a finished repair, or of CHAT/TURN of a chat, in a
// separate episode, and returns its ID once it is clear that the changes may be taken
// back: [healer.ChangedError] names paths that have changed since. A repeated call
// returns the same episode, unless that has failed.
func (h *Healing) RollBack(ctx context.Context, id string) (back string, err error) {
	for {
		ierr := h.in(ctx, func() {
			if of, turn, ok := turnOf(id); ok {
				back, err = h.openBackTurn(id, of, turn)
			} else {
				back, err = h.openBack(id)
			}
		})
		if err == nil {
			err = ierr
		}
		if !errors.Is(err, errEnding) {
			break
		}
		if !backoff.Wait(ctx, liveEvery) {
			return "", ctx.Err()
		}
	}
	if err != nil {
		return "", err
	}
	return back, h.begun(ctx, back)
}

// begun waits until it is known that an episode may do what it was opened for.
func (h *Healing) begun(ctx context.Context, id string) error {
	for {
		entries, err := healer.ReadJournal(filepath.Join(h.store.episode(id), healer.JournalFile))
		if err != nil {
			return err
		}
		switch s := healer.Fold(entries); {
		case s.Done() && len(s.Changed) > 0:
			return &healer.ChangedError{Why: s.Why, Paths: s.Changed}
		case s.Done() && s.Status != healer.Ready:
			return &refusedError{s.Why}
		case s.Doing > healer.Look:
			return nil
		}
		if !backoff.Wait(ctx, liveEvery) {
			return ctx.Err()
		}
	}
}

// openBack starts to take an episode back, or finds the episode that does so, or did.
func (h *Healing) openBack(id string) (string, error) {
	if id == "" {
		return "", &process.InvalidError{Field: "id", Reason: "is missing: say which repair is taken back; tend episodes lists all"}
	}
	if _, err := h.message(id); err != nil {
		return "", err
	}
	o, err := healer.ReadOrder(h.store.episode(id))
	if err != nil {
		return "", err
	}
	why := h.occupied()
	if f := h.episode; f != nil && f.order.Back != nil && f.order.Back.Episode == id {
		return f.order.ID, nil
	}
	if done := h.store.takenBack(id); done != "" {
		if _, err := h.message(done); err == nil {
			return done, nil
		}
		return "", &refusedError{"it was taken back already, by " + done}
	}
	entries, err := healer.ReadJournal(o.Path(healer.JournalFile))
	if err != nil {
		return "", err
	}
	s := healer.Fold(entries)
	if err := h.store.cannotRollBack(o, &s); err != nil {
		return "", err
	}
	d := h.declared
	if d == nil || d.Service != o.Service || d.File != o.File {
		return "", errtext.New(fmt.Sprintf("%s has no healer any more: add the line healer: {} to %s, and run tend up -d%s",
			o.Service, o.File, byHand(&s)), process.ErrUnsupported)
	}
	if why != "" {
		return "", &refusedError{why}
	}
	sandbox, err := h.sandboxThen(o, o.SandboxID, o.At)
	if err != nil {
		return "", err
	}
	back := &healer.Back{Episode: id, Commit: s.Committed}
	if s.Committed == "" {
		back.Undo = o.Path(healer.UndoFile)
	}
	return h.launchBack(o, sandbox, back, "the repair "+id)
}

// launchBack begins to take back what the worker of an order has changed, in the sandbox with an
// ID or on the machine.
func (h *Healing) launchBack(o *healer.Order, sandbox string, back *healer.Back, what string) (string, error) {
	now := time.Now()
	rules := *h.declared.Healer
	rules.LLM, rules.Root = nil, o.Healer.Root
	begun := &healer.Order{
		ID: newID(now), StateDir: h.c.StateDir, Keys: h.store.path(declaredFile), URL: h.c.URL, File: o.File,
		Rules: o.Rules, Healer: &rules, Service: o.Service, SandboxID: sandbox, At: now,
		Signal: healer.Signal{Kind: "rollback", Text: "somebody wants " + what + " taken back", At: now},
		Back:   back,
	}
	begun.Dir = h.store.episode(begun.ID)
	if err := h.launch(begun, h.state); err != nil {
		return "", err
	}
	return begun.ID, nil
}

// byHand says how a person takes a repair back.
func byHand(s *healer.State) string {
	if s.Committed == "" {
		return ""
	}
	return fmt.Sprintf("; or, in the project: git revert %.12s", s.Committed)
}

// cannotRollBack says why there is nothing of an episode to go back to; nil: there is.
func (s store) cannotRollBack(o *healer.Order, of *healer.State) error {
	nothing := func(why string) error { return errtext.New(why, process.ErrUnsupported) }
	switch {
	case !of.Done():
		return &refusedError{"it is under way: tend heal --cancel ends it, and takes back what it has changed"}
	case of.Back != "":
		return nothing("it has taken back " + of.Back + "; tend heal repairs the service again")
	case of.DryRun, of.Status != healer.Ready:
		return nothing("there is nothing to go back to: it has changed nothing that was not taken back")
	case of.Committed != "":
		return nil
	}
	if _, err := os.Lstat(o.Path(healer.UndoFile)); err != nil {
		return nothing("there is nothing to go back to: it has committed nothing, and has kept nothing of what it changed")
	}
	return nil
}

// leastProof is how long it is at least looked at whether a repair lasts.
const leastProof = time.Minute

// mayNotLast is the repair of an episode, if it is by a model and can be taken back: no rule has seen
// its cause, so nobody knows whether it lasts.
func (s store) mayNotLast(f *follower) *last {
	st, o := &f.state, f.order
	if len(st.Tries) == 0 || st.Cause == "" || s.cannotRollBack(o, st) != nil {
		return nil
	}
	if kind := st.Tries[len(st.Tries)-1].Kind; kind != healer.Model && kind != healer.Apply {
		return nil
	}
	l := &last{healer.Back{Episode: o.ID, Commit: st.Committed, Cause: st.Cause}, o.SandboxID, time.Now().Add(max(leastProof, 2*st.Lived))}
	if l.Commit == "" {
		l.Undo = o.Path(healer.UndoFile)
	}
	return l
}

// takenBack is the episode that has taken one back; "": none has.
func (s store) takenBack(id string) string {
	data, err := atomicfile.Read(filepath.Join(s.episode(id), healer.BackFile), maxFile)
	if by := strings.TrimSpace(string(data)); err == nil && validID(by) {
		return by
	}
	return ""
}

// tookBack reports whether an episode that is over has taken back another one, and stores
// that with the other one, whatever is declared by now.
func (h *Healing) tookBack(f *follower) bool {
	of := f.state.Undid()
	if of == "" {
		return false
	}
	if f.order.Back != nil && f.order.Back.Turn > 0 {
		h.tookTurnBack(f)
		return true
	}
	at := filepath.Join(h.store.episode(of), healer.BackFile)
	if err := atomicfile.Synced(at, []byte(f.order.ID+"\n"), 0o600); err != nil {
		h.c.Log.Error("that a repair was taken back could not be stored", "episode", of, "err", err)
	}
	return true
}
