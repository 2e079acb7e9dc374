package healing

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/healer"
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
	// spare is how long a worker may take beyond the time of its episode: a rollback.
	spare = 5 * time.Minute
	// workerTTL is how long the output of a worker is kept.
	workerTTL = 24 * time.Hour
)

// follower follows the workers of one episode. Its fields belong to the loop of Healing.
type follower struct {
	order *healer.Order
	state healer.State
	end   context.CancelFunc

	inbox sync.Mutex // of those who write into the file
}

// open begins an episode, if the breaker allows it. The error says why not.
func (h *Healing) open(signal healer.Signal, asked, dry bool) (string, error) {
	now, d := time.Now(), h.declared
	if d == nil {
		return "", fmt.Errorf("%w: no file with a healer was applied; add healer: {} to the tend.yaml, and run tend up", process.ErrUnsupported)
	}
	if h.episode != nil {
		return "", &refusedError{"an episode of it is under way: " + h.episode.order.ID}
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
	id := now.UTC().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:6])
	o := &healer.Order{
		ID: id, Dir: h.dirOf(id), StateDir: h.c.StateDir, Keys: h.store.path(declaredFile), URL: h.c.URL, File: d.File,
		Rules: rules.Rules, Healer: d.Healer, Service: d.Service, Signal: signal, DryRun: dry, At: now,
	}
	if err := begin(o); err != nil {
		h.c.Log.Error("an episode could not be begun", "err", err)
		_ = os.RemoveAll(o.Dir)
		return "", err
	}
	if !dry {
		h.state.Breaker.Begin(now)
		h.state.Newest, h.state.Ended = id, healer.Running
	}
	h.active()
	h.state.Episode = id
	h.keep()
	h.store.prune(h.state.Newest)
	h.follow(id)
	return id, nil
}

// begin writes what a worker needs.
func begin(o *healer.Order) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := replace.Synced(o.Path(healer.OrderFile), data, 0o600); err != nil {
		return err
	}
	j, _, err := healer.OpenJournal(o.Path(healer.JournalFile))
	if err != nil {
		return err
	}
	return errors.Join(j.Append(healer.Entry{At: o.At, Kind: healer.Opened, ID: o.ID, Service: o.Service, DryRun: o.DryRun, Signal: &o.Signal}), j.Close())
}

// readOrder reads the order of an episode.
func readOrder(dir string) (*healer.Order, error) {
	data, err := replace.Read(filepath.Join(dir, healer.OrderFile), maxFile)
	if err != nil {
		return nil, err
	}
	o := new(healer.Order)
	if err := json.Unmarshal(data, o); err != nil {
		return nil, err
	}
	return o, nil
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
	o, err := readOrder(h.dirOf(id))
	if err != nil {
		h.c.Log.Error("an episode cannot be followed", "episode", id, "err", err)
		h.state.Episode = ""
		if !errors.Is(err, fs.ErrNotExist) {
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

// news has the loop look at the journal.
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
	if !f.order.DryRun {
		h.state.Ended = f.state.Status
		h.state.Breaker.End(time.Now(), f.state.Status, f.state.Why)
	}
	h.sense.Forget()
	h.keep()
	if h.state.Breaker.Broken {
		h.passive()
	}
}

// work starts workers, one after the other, until the episode is over, and one has left
// nothing behind.
func (h *Healing) work(ctx context.Context, f *follower) {
	defer f.end()
	for n := 1; ctx.Err() == nil; n++ {
		if n > mostWorkers {
			h.endWithout(f)
			h.newsOf(ctx, f)
			return
		}
		well := h.follows(ctx, f, n)
		if h.newsOf(ctx, f) && well {
			return
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
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
		if !wait(ctx, again) {
			return false
		}
	}
	return false
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// startWorker starts or finds the n-th worker; nil: there can be none.
func (h *Healing) startWorker(ctx context.Context, f *follower, n int) process.Process {
	id := process.ID("heal-" + f.order.ID + "-" + strconv.Itoa(n))
	for {
		p, err := h.c.Manager.Get(ctx, process.Selector{ID: id})
		if errors.Is(err, process.ErrNotFound) {
			p, err = h.c.Manager.Start(ctx, process.Spec{
				ID: id, Name: "heal-" + f.order.Service, Argv: append(append([]string{}, h.c.Program...), "heal-episode", f.order.Dir),
				Dir: f.order.Dir, Labels: map[string]string{LabelEpisode: f.order.ID, labelWorker: strconv.Itoa(n)},
				Timeout: f.order.Healer.Wall.Std() + spare, TimeoutScope: process.ScopeTree,
				Retention: process.Retention{TTL: workerTTL, Limit: 1 << 20},
			})
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
		if !wait(ctx, again) {
			return nil
		}
	}
}

// endWithout ends an episode whose workers all die, or cannot be started: the journal
// counts each, and so comes to an end.
func (h *Healing) endWithout(f *follower) {
	j, entries, err := healer.OpenJournal(f.order.Path(healer.JournalFile))
	if err != nil {
		h.c.Log.Error("a journal cannot be written", "episode", f.order.ID, "err", err)
		return
	}
	defer j.Close()
	s := healer.Fold(entries)
	for !s.Done() {
		e := healer.Entry{At: time.Now(), Kind: healer.Began}
		if err := j.Append(e); err != nil {
			h.c.Log.Error("a journal cannot be written", "episode", f.order.ID, "err", err)
			return
		}
		s, _ = healer.Step(s, e)
	}
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
