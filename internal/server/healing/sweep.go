package healing

import (
	"context"
	"os"
	"slices"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// tidier is the number of a worker that only removes what an episode that is over has left,
// and forgetter that of one that does so before the episode itself is removed.
const (
	tidier    = 0
	forgetter = mostWorkers + 1
)

// tidy starts a worker that removes what the workers of a finished episode left of its
// checkpoints, such as refs in the user's repository: the last worker died before it
// did this, or none reached this step. Data for a manual rollback stays.
func (h *Healing) tidy(ctx context.Context, id string) {
	if !hasPoints(h.store.episode(id)) {
		return
	}
	o, err := healer.ReadOrder(h.store.episode(id))
	if err != nil {
		return
	}
	entries, err := healer.ReadJournal(o.Path(healer.JournalFile))
	if s := healer.Fold(entries); err != nil || !s.Done() || s.Dirty {
		return
	}
	if !h.isAway(ctx, o) { // else the next server does
		h.follows(ctx, &follower{order: o}, tidier)
	}
}

// tidyAll does so for all episodes of which a server before this one saw the end.
func (h *Healing) tidyAll(ctx context.Context) {
	for _, id := range h.store.episodes() {
		if ctx.Err() != nil {
			return
		}
		h.tidy(ctx, id)
	}
}

// prune removes all but the newest episodes. An episode whose changes could not all be
// rolled back still has a checkpoint: its ref in the user's repository is removed
// first, because nothing else would ever remove it.
func (h *Healing) prune(begun *healer.Order) {
	keep := []string{h.state.Newest, h.state.Episode}
	if begun.Back != nil {
		keep = append(keep, begun.Back.Episode) // it is read still
	}
	h.wg.Go(func() {
		h.pruning.Lock() // of episodes that begin one after the other
		defer h.pruning.Unlock()
		for n, id := range h.store.old() {
			if h.alive.Err() != nil {
				return // the next server does it
			}
			if slices.Contains(keep, id) {
				continue
			}
			// One of which that is not possible is not kept for ever either.
			if hasPoints(h.store.episode(id)) && !h.forget(h.alive, id) && (n < keepEpisodes || h.alive.Err() != nil) {
				continue
			}
			_ = os.RemoveAll(h.store.episode(id)) // what is left is tried again after the next one
		}
	})
}

// forget has a worker remove the checkpoints of an episode, and reports whether none is
// left.
func (h *Healing) forget(ctx context.Context, id string) bool {
	o, err := healer.ReadOrder(h.store.episode(id))
	if err == nil {
		err = atomicfile.File(o.Path(healer.ForgetFile), nil, 0o600)
	}
	return err == nil && !h.isAway(ctx, o) && h.follows(ctx, &follower{order: o}, forgetter) && !hasPoints(h.store.episode(id))
}
