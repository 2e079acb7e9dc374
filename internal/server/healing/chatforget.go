package healing

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
)

// A chat that is cleared, or is older than keepChats others, is forgotten at once: it
// is no longer shown. Then a worker without a turn removes what killed workers have
// left of their checkpoints, such as a ref in the user's repository, which nothing else
// would ever remove. Copies of the user's uncommitted versions stay until there are
// keepChats newer chats, because people were told where they are.

// forgetTries is how many workers may try to remove the checkpoints of a chat, each time.
const forgetTries = 2

// forgotten reports whether a chat was, or is gone.
func forgotten(dir string) bool {
	if _, err := os.Lstat(dir); err != nil {
		return true
	}
	_, err := os.Lstat(filepath.Join(dir, healer.ForgetFile))
	return err == nil
}

// ClearChat forgets a chat, and returns when what its workers have left is gone, as far as
// that is possible now.
func (h *Healing) ClearChat(ctx context.Context, service, id string) (err error) {
	var swept <-chan struct{}
	ierr := h.in(ctx, func() {
		if err = h.meant(service); err != nil || h.talk == nil || id != "" && h.talk.order.ID != id {
			return // it is forgotten already
		}
		h.catchEnd()
		// Its worker may be about to end: it needs nothing more.
		if _, err = h.talk.journal.Read(); err == nil && h.talk.state().Phase != chat.Idle {
			err = &refusedError{"the model is still working; stop it first"}
		}
		if f := h.episode; err == nil && f != nil && f.order.Back != nil && f.order.Back.Turn > 0 {
			err = &refusedError{"a turn of it is being taken back: wait for that first"}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err = h.forgetTalk(h.talk.order.ID); err == nil {
			h.talk, swept = nil, h.sweepTalks()
		}
	})
	if swept != nil {
		select {
		case <-swept:
		case <-ctx.Done(): // it continues
		}
	}
	return errors.Join(err, ierr)
}

// forgetTalk forgets a chat. It removes the conversation first.
func (h *Healing) forgetTalk(id string) error {
	dir := h.store.chat(id)
	err := atomicfile.Synced(filepath.Join(dir, healer.ForgetFile), nil, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // somebody has removed it
		return nil
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(dir, healer.JournalFile)), os.RemoveAll(filepath.Join(dir, healer.WordsFile)),
		os.RemoveAll(filepath.Join(dir, chat.TurnsDir)))
}

// sweepTalks removes all forgotten chats, and then closes the channel that it returns.
// The loop calls it.
func (h *Healing) sweepTalks() <-chan struct{} {
	old := map[string]bool{}
	for n, id := range h.store.chats() {
		if forgotten(h.store.chat(id)) {
			old[id] = n >= keepChats
		}
	}
	swept := make(chan struct{})
	h.wg.Go(func() {
		defer close(swept)
		h.sweeping.Lock() // of sweeps that begin one after the other
		defer h.sweeping.Unlock()
		for id, old := range old {
			if !h.removePoints(id) && !old || h.alive.Err() != nil {
				continue // the next sweep does it
			}
			if dir := h.store.chat(id); old || !keepCopies(dir) {
				_ = os.RemoveAll(dir) // what is left is tried again, too
			}
		}
	})
	return swept
}

// removePoints has workers remove the checkpoints of a chat, and reports whether none is left.
func (h *Healing) removePoints(id string) bool {
	dir := h.store.chat(id)
	for tries := 0; hasPoints(dir) && tries < forgetTries && h.alive.Err() == nil; {
		o, err := healer.ReadOrder(dir)
		if err != nil || h.isAway(h.alive, o) {
			break
		}
		if err := h.workOn(h.alive, o); errors.Is(err, process.ErrUnavailable) {
			backoff.Wait(h.alive, again) // there is no keeper at this moment
			continue
		}
		tries++
	}
	return !hasPoints(dir)
}

// keepCopies removes all of a chat without checkpoints but the copies that are named to
// people, and reports whether there are any.
func keepCopies(dir string) (are bool) {
	removeBut(dir, healer.ForgetFile, healer.PointsDir)
	points, _ := os.ReadDir(filepath.Join(dir, healer.PointsDir)) // none, if there is no directory
	for _, p := range points {
		at := filepath.Join(dir, healer.PointsDir, p.Name())
		removeBut(at, checkpoint.KeptDir)
		if copies, _ := os.ReadDir(filepath.Join(at, checkpoint.KeptDir)); len(copies) > 0 {
			are = true
			continue
		}
		_ = os.RemoveAll(at)
	}
	return are
}

// removeBut removes the content of a directory except some names.
func removeBut(dir string, names ...string) {
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if !slices.Contains(names, e.Name()) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
