package healing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// Held applies the change with a hash that an episode holds, in an episode of its own, whose ID it
// returns once it is clear that it may: [healer.ChangedError] names files that have changed since.
// discard: it removes it instead.
func (h *Healing) Held(ctx context.Context, hash string, discard bool) (id string, err error) {
	ierr := h.in(ctx, func() {
		of := h.store.holder(hash)
		switch {
		case of == "":
			err = errtext.New(fmt.Sprintf("no change %.80q waits; tend heal show shows what does", hash), process.ErrNotFound)
		case discard:
			err = os.Remove(filepath.Join(h.store.episode(of), healer.HeldFile))
		default:
			id, err = h.apply(of, hash)
			h.show()
		}
	})
	if err = errors.Join(err, ierr); err != nil || discard {
		return "", err
	}
	return id, h.begun(ctx, id)
}

func (h *Healing) apply(of, hash string) (string, error) {
	o, err := healer.ReadOrder(h.store.episode(of))
	if err != nil {
		return "", err
	}
	if d := h.declared; d != nil && (d.Service != o.Service || d.Healer.Root != o.Healer.Root) {
		return "", errtext.New(fmt.Sprintf("the change is for %s in %s, which has no healer any more", o.Service, o.Healer.Root),
			process.ErrUnsupported)
	}
	return h.openOrder(healer.Signal{Kind: "apply", Text: "somebody applies what " + of + " holds", At: time.Now()}, true, false, of, hash)
}

// holder is the episode that holds the change with a hash; "": none does.
func (s store) holder(hash string) string {
	for _, id := range s.episodes() {
		if held := s.held(id); held != nil && held.Hash == hash {
			return id
		}
	}
	return ""
}

// held is the change of an episode that waits; nil: none does.
func (s store) held(id string) *healer.Held {
	held, err := healer.ReadHeld(s.episode(id))
	if err != nil {
		return nil
	}
	return held
}
