package healing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/healer"
	"github.com/tend-run/tend/internal/pace"
	"github.com/tend-run/tend/internal/replace"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor/run"
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

// open begins an episode, if the breaker allows it. The error says why not.
func (h *Healing) open(signal healer.Signal, asked, dry bool) (string, error) {
	now, d := time.Now(), h.declared
	if d == nil {
		return "", &plainError{"no service has a healer; add the line healer: {} to the tend.yaml, and run tend up -d", process.ErrUnsupported}
	}
	if why := h.occupied(); why != "" && !(dry && h.episode == nil) {
		return "", &refusedError{why}
	}
	if why := h.state.Breaker.Allows(now, d.Healer.PerDay, asked); why != "" && !dry {
		if !h.state.Breaker.Broken && !asked {
			h.c.Log.Warn("nothing is repaired", "service", d.Service, "why", why)
			h.state.Breaker.Break(now, why)
			h.keep()
			h.passive()
		}
		return "", &refusedError{why}
	}
	rules, err := h.rulesOf(d.Service)
	if err != nil {
		return "", err
	}
	id := newID(now)
	o := &healer.Order{
		ID: id, Dir: h.store.episode(id), StateDir: h.c.StateDir, Keys: h.store.path(declaredFile), URL: h.c.URL, File: d.File,
		Rules: rules.Rules, Healer: d.Healer, Service: d.Service, Signal: signal, DryRun: dry, At: now,
	}
	was := h.state
	if !dry {
		h.state.Breaker.Begin(now)
		h.state.Newest, h.state.Ended = id, healer.Running
	}
	if err := h.launch(o, was); err != nil {
		return "", err
	}
	h.active()
	return id, nil
}

// occupied says why nothing new can be done for the service now; "": it can. An episode whose
// journal is at its end is over, also if no news of it has come yet: others have read so.
func (h *Healing) occupied() string {
	if f := h.episode; f != nil {
		if f.read(h); f.state.Done() {
			h.conclude(f)
		}
	}
	switch {
	case h.episode != nil:
		return "an episode of it is under way: " + h.episode.order.ID
	case h.talking():
		return "a chat works on it: wait, or stop that first"
	}
	return ""
}

// launch writes an episode down, and has it worked on. If that is not possible, the state is
// what it was.
func (h *Healing) launch(o *healer.Order, was state) error {
	h.state.Episode = o.ID
	// First it is known that there is one: nobody would follow one of which only the
	// directory tells.
	err := h.store.save(stateFile, h.state)
	if err == nil {
		err = begin(o)
	}
	if err != nil {
		h.c.Log.Error("an episode could not be begun", "err", err)
		_ = os.RemoveAll(o.Dir)
		h.state = was
		h.keep()
		return err
	}
	h.prune(o)
	h.follow(o.ID)
	return nil
}

// begin writes what a worker needs, and the order last: with it the episode has begun.
func begin(o *healer.Order) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	j, _, err := healer.OpenJournal(o.Path(healer.JournalFile))
	if err != nil {
		return err
	}
	if err := errors.Join(j.Append(opened(o)), j.Close()); err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return replace.Synced(o.Path(healer.OrderFile), data, 0o600)
}

// opened is the first entry of a journal.
func opened(o *healer.Order) healer.Entry {
	e := healer.Entry{At: o.At, Kind: healer.Opened, ID: o.ID, Service: o.Service, DryRun: o.DryRun, Signal: &o.Signal}
	if o.Back != nil {
		e.Back = o.Back.Episode
	}
	return e
}

func (h *Healing) rulesOf(service string) (*run.Status, error) {
	all, err := h.kept.List(h.alive)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == service {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("there is no service %.80q: %w", service, process.ErrNotFound)
}

// refusedError: it cannot be repaired now.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }
func (e *refusedError) Unwrap() error { return process.ErrRunning }

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
		if f.read(h); f.state.Done() && h.episode == f {
			h.conclude(f)
		}
		over = f.state.Done()
		h.show()
	})
	return over
}

// conclude: the episode is over.
func (h *Healing) conclude(f *follower) {
	h.episode = nil
	h.state.Episode = ""
	took := h.tookBack(f)
	switch d := h.declared; {
	case d == nil || d.Service != f.order.Service || d.File != f.order.File:
		h.state = state{} // it says nothing of what is declared now
	case took:
		h.state.Ended = healer.Running
		h.state.Breaker.Decline(time.Now(), f.order.Back.Episode)
	case f.order.Back != nil: // nothing was done
	case !f.order.DryRun:
		h.state.Ended = f.state.Status
		h.state.Breaker.End(time.Now(), f.state.Status, f.state.Why)
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
			pace.Wait(ctx, later)
			continue
		}
		if !h.inPlace(ctx, f) {
			return
		}
		well := h.follows(ctx, f, n)
		if h.newsOf(ctx, f) && well {
			return
		}
		pace.Wait(ctx, again)
	}
}

// awayEvery is how often it is looked whether a sandbox is ready again.
const awayEvery = time.Second

// inPlace waits while the sandbox of the service is paused or stopped: no worker could do
// anything. false: ctx has ended.
func (h *Healing) inPlace(ctx context.Context, f *follower) bool {
	for h.isAway(ctx, f.order) {
		if !pace.Wait(ctx, awayEvery) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (h *Healing) isAway(ctx context.Context, o *healer.Order) bool {
	key := o.Rules.Sandbox
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
		if !pace.Wait(ctx, again) {
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
		if !pace.Wait(ctx, again) {
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

// tidier is the number of a worker that only removes what an episode that is over has left,
// and forgetter that of one that does so before the episode itself is removed.
const (
	tidier    = 0
	forgetter = mostWorkers + 1
)

// tidy has a worker remove what those of an episode that is over have left of its
// checkpoints, such as refs in the user's repository: the last one died before it did, or
// none came to it. What is needed to take something back by hand stays.
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

// prune removes episodes that are older than the newest ones. One of which something
// could not be taken back has a checkpoint still: the ref of that in the user's repository
// goes first, which nobody else would ever remove.
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
		err = replace.File(o.Path(healer.ForgetFile), nil, 0o600)
	}
	return err == nil && !h.isAway(ctx, o) && h.follows(ctx, &follower{order: o}, forgetter) && !hasPoints(h.store.episode(id))
}

// lost: the record of the episode is gone.
func (h *Healing) lost(f *follower) {
	if h.episode == f {
		f.state.Status, f.state.Why = healer.Broken, "the record of the episode "+f.order.ID+" is gone"
		h.conclude(f)
		h.show()
	}
}

// signalled tells the worker of a signal. Beyond those that an episode keeps, none changes
// anything.
func (f *follower) signalled(e healer.Entry) {
	if f.told++; f.told <= healer.MaxSignals {
		_ = f.tell(e) // else the worker sees it by itself
	}
}

// cancel tells the worker to end. Once is enough: a file that grew with each request could
// not be read any more.
func (f *follower) cancel() error {
	if f.cancelled {
		return nil
	}
	err := f.tell(healer.Entry{At: time.Now(), Kind: healer.Cancelled})
	f.cancelled = err == nil
	return err
}

// tell puts an entry into the inbox of the worker. What cannot be written is lost: the
// worker sees the service by itself.
func (f *follower) tell(e healer.Entry) error {
	f.inbox.Lock()
	defer f.inbox.Unlock()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := replace.Open(f.order.Path(healer.InboxFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
