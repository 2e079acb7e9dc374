package healing

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
)

// Labels of the processes of an episode.
const (
	LabelEpisode = "tend.heal"
	labelWorker  = "tend.heal.worker"
)

const (
	// mostWorkers is when the server itself ends an episode whose workers all die.
	mostWorkers = 2*healer.MaxWorkers + 1
	// again is how soon a worker follows one that has died.
	again = 300 * time.Millisecond
	// later is when a journal that cannot be written is tried again.
	later = 5 * time.Second
	// spare is how long a worker may take beyond the time of its episode: a rollback.
	spare = 5 * time.Minute
	// workerMemory bounds a worker with all that it runs, where there are cgroups; a Go
	// program that comes near goMemory collects more often, everywhere.
	workerMemory = 4 << 30
	workerPids   = 2048
	goMemory     = "1GiB"
	// workerTTL is how long the output of a worker is kept.
	workerTTL = 24 * time.Hour
)

// follower follows the workers of one episode. Its fields belong to the loop of Healing.
type follower struct {
	order *healer.Order
	state healer.State
	end   context.CancelFunc

	inbox     sync.Mutex // of those who write into the file
	told      int        // signals that are in it
	cancelled bool       // that is in it
}

// follow follows an episode to its end.
func (h *Healing) follow(id string) {
	o, err := healer.ReadOrder(h.store.episode(id))
	if err != nil {
		h.c.Log.Error("an episode cannot be followed", "episode", id, "err", err)
		h.state.Episode = ""
		if errors.Is(err, fs.ErrNotExist) { // the server before ended while it began
			_ = os.RemoveAll(h.store.episode(id)) // else it is pruned some day
			if h.state.Newest == id {
				h.state.Newest = ""
			}
		} else {
			h.state.Breaker.Break(time.Now(), "the record of the episode "+id+" cannot be read: "+err.Error())
			h.passive()
		}
		h.keep()
		return
	}
	ctx, end := context.WithCancel(h.alive)
	f := &follower{order: o, end: end}
	h.episode = f
	h.learnIgnored()
	f.read(h)
	h.wg.Go(func() { h.work(ctx, f) })
}

// read reads the journal.
func (f *follower) read(h *Healing) {
	entries, err := healer.ReadJournal(f.order.Path(healer.JournalFile))
	if err != nil {
		h.c.Log.Error("a journal cannot be read", "episode", f.order.ID, "err", err)
		return
	}
	f.state = healer.Fold(entries)
}

// newsOf has the loop look at the journal, and reports whether the episode is over.
func (h *Healing) newsOf(ctx context.Context, f *follower) (over bool) {
	_ = h.in(ctx, func() {
		h.readOn(f)
		over = f.state.Done()
	})
	return over
}

// readOn reads the journal of an episode, and concludes an episode that is over.
func (h *Healing) readOn(f *follower) {
	if f.read(h); f.state.Done() && h.episode == f {
		h.conclude(f)
	}
	h.show()
}

// isDeclared reports whether an episode is of the service that is declared now: another may
// have been declared since it began.
func (h *Healing) isDeclared(f *follower) bool {
	d := h.declared
	return d != nil && d.Service == f.order.Service && d.File == f.order.File
}

// conclude: the episode is over.
func (h *Healing) conclude(f *follower) {
	h.episode = nil
	h.state.Episode = ""
	took := h.tookBack(f)
	switch {
	case !h.isDeclared(f):
		h.state = state{} // it says nothing of what is declared now
	case took && f.order.Back != nil && f.order.Back.Turn == 0:
		h.state.Last = nil
		h.state.Ended = healer.Running
		h.state.Breaker.Decline(time.Now(), f.order.Back.Episode)
	case f.order.Back != nil: // nothing was done
	case !f.order.DryRun:
		h.state.Ended, h.state.Last = f.state.Status, h.store.mayNotLast(f)
		h.state.Breaker.End(time.Now(), f.state.Status, f.state.Reason())
	}
	h.sense.Forget()
	h.keep()
	if h.state.Breaker.Broken {
		h.passive()
	}
	h.wg.Go(func() { h.catchUp(h.alive) })
}

// work starts workers, one after the other, until the episode is over, and one has left
// nothing behind.
func (h *Healing) work(ctx context.Context, f *follower) {
	defer f.end()
	for n := 1; ctx.Err() == nil; n++ {
		if n > mostWorkers {
			err := h.endWithout(f)
			if h.newsOf(ctx, f) {
				h.tidy(ctx, f.order.ID)
				return
			}
			h.c.Log.Error("an episode cannot be ended", "episode", f.order.ID, "err", err)
			if errors.Is(err, fs.ErrNotExist) {
				_ = h.in(ctx, func() { h.lost(f) }) // else the server ends
				return
			}
			backoff.Wait(ctx, later)
			continue
		}
		if !h.inPlace(ctx, f) {
			return
		}
		well := h.follows(ctx, f, n)
		if h.newsOf(ctx, f) && well {
			return
		}
		backoff.Wait(ctx, again)
	}
}

// awayEvery is how often it is looked whether a sandbox is ready again.
const awayEvery = time.Second

// inPlace waits while the sandbox of the service is paused or stopped: no worker could do
// anything. false: ctx has ended.
func (h *Healing) inPlace(ctx context.Context, f *follower) bool {
	for h.isAway(ctx, f.order) {
		if !backoff.Wait(ctx, awayEvery) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (h *Healing) isAway(ctx context.Context, o *healer.Order) bool {
	key := o.SandboxKey()
	return key != "" && h.c.Away != nil && h.c.Away(ctx, key)
}

// follows starts the n-th worker, or finds it, and returns when it has ended: whether well.
func (h *Healing) follows(ctx context.Context, f *follower, n int) bool {
	p := h.startWorker(ctx, f, n)
	if p == nil {
		return false
	}
	for ctx.Err() == nil {
		for ev, err := range process.Events(ctx, p, process.ReadOptions{}) {
			if err != nil {
				break
			}
			if ev.Kind == process.EventOutput {
				h.newsOf(ctx, f)
			}
			if ev.Kind == process.EventExited {
				break
			}
		}
		in, err := p.Info(ctx)
		if errors.Is(err, process.ErrNotFound) || err == nil && in.Exit != nil {
			well := err == nil && in.Exit.Cause == process.CauseExited && in.Exit.Code == 0
			if err == nil && !well {
				h.c.Log.Warn("a worker of the healer has ended", "episode", f.order.ID, "worker", n, "exit", in.Exit.String())
			}
			return well
		}
		if !backoff.Wait(ctx, again) {
			return false
		}
	}
	return false
}

// startWorker starts or finds the n-th worker; nil: there can be none.
func (h *Healing) startWorker(ctx context.Context, f *follower, n int) process.Process {
	id := process.ID("heal-" + f.order.ID + "-" + strconv.Itoa(n))
	for {
		p, err := h.c.Manager.Get(ctx, process.Selector{ID: id})
		if errors.Is(err, process.ErrNotFound) {
			spec := process.Spec{
				ID: id, Name: "heal-" + f.order.Service, Argv: append(append([]string{}, h.c.Program...), "heal-episode", f.order.Dir),
				Dir: f.order.Dir, Labels: map[string]string{LabelEpisode: f.order.ID, labelWorker: strconv.Itoa(n)},
				Timeout: f.order.Healer.Wall.Std() + spare,
			}
			p, err = h.startOf(ctx, spec)
		}
		if err == nil {
			return p
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, process.ErrUnavailable) {
			h.c.Log.Error("a worker of the healer could not be started", "episode", f.order.ID, "err", err)
			return nil
		}
		if !backoff.Wait(ctx, again) {
			return nil
		}
	}
}

// endWithout ends an episode whose workers all die, or cannot be started: the journal
// counts each, and so comes to an end.
func (h *Healing) endWithout(f *follower) error {
	if _, err := os.Lstat(f.order.Dir); err != nil {
		return err
	}
	j, entries, err := healer.OpenJournal(f.order.Path(healer.JournalFile))
	if err != nil {
		return err
	}
	defer j.Close()
	s := healer.Fold(entries)
	for !s.Done() {
		e := healer.Entry{At: time.Now(), Kind: healer.Began}
		if s.Doing == healer.Nothing { // what was in it cannot be read
			e = opened(f.order)
		}
		if err := j.Append(e); err != nil {
			return err
		}
		s, _ = healer.Step(s, e)
	}
	return nil
}

// lost: the record of the episode is gone.
func (h *Healing) lost(f *follower) {
	if h.episode == f {
		f.state.Status, f.state.Why = healer.Broken, "the record of the episode "+f.order.ID+" is gone"
		h.conclude(f)
		h.show()
	}
}
