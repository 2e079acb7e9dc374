package run

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/tend-run/tend/observe"
	"github.com/tend-run/tend/observe/pressure"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor"
	"github.com/tend-run/tend/supervisor/config"
)

// often is how many times more often it is looked while something comes near to being
// short.
const often = 4

func pressureRules(p *config.Pressure) *pressure.Rules {
	return &pressure.Rules{
		Memory: p.Memory, Descriptors: p.Descriptors, Pids: p.Pids, Disk: int64(p.Disk),
		Looks: p.Looks, Of: p.Of, Stalls: p.Stalls,
	}
}

// awaitPressure looks whether a run is short of something, until it has ended.
func (w *worker) awaitPressure(ctx context.Context, pid int, n int64, declared *config.Service, ends *kernelEnds) {
	var sys pressure.System
	var judge pressure.Judge
	rules, interval := pressureRules(declared.Pressure), declared.Pressure.Interval.Std()
	dirs := []string{declared.Cwd, w.s.c.Dir}
	stalls := make(chan struct{}, 1)
	if rules.Stalls && rules.Memory > 0 {
		if g, err := sys.GroupOf(pid); err == nil {
			if t, err := sys.Trigger(g); err == nil {
				w.s.wg.Go(func() { tellStalls(ctx, t, stalls) })
			}
		}
	}
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stalls:
		case <-timer.C:
		}
		g, err := sys.GroupOf(pid)
		if err != nil {
			// The command has ended; what it has left is in no group that is known.
			if !w.pause(ctx) {
				return
			}
			timer.Reset(interval)
			continue
		}
		ends.note(g)
		pids := g.Members()
		if pids == nil {
			pids = observe.Tree(pid)
		}
		sample := sys.Look(g, pids, dirs)
		for _, f := range judge.Add(rules, time.Since(begin), sample) {
			w.tell(supervisor.Event{Kind: supervisor.Pressure, Run: n, OK: f.Own, Text: f.Text})
		}
		wait := interval
		if rules.Stalls && sample.Tense(rules) {
			wait /= often
		}
		timer.Reset(wait)
	}
}

// tellStalls passes on that the kernel tells of stalls.
func tellStalls(ctx context.Context, t *pressure.Trigger, stalls chan<- struct{}) {
	stop := context.AfterFunc(ctx, func() { _ = t.Close() })
	for t.Wait() == nil {
		select {
		case stalls <- struct{}{}:
		default:
		}
	}
	if stop() {
		_ = t.Close()
	}
}

// kernelEnds tells whether the kernel has ended a run for want of memory.
type kernelEnds struct {
	mu sync.Mutex
	// The group of the run, and the one that it was in before: a process that has just
	// died is shown in the outermost. Guarded by mu.
	groups []countedGroup
	// grown is when a count was found to have grown; guarded by mu.
	grown time.Time
}

// countedGroup is a group as it was seen last.
type countedGroup struct {
	*pressure.Group
	count  int64 // of processes that the kernel has ended
	shared bool  // others count there
	seen   time.Time
}

// recent is how old news may be that need not be of this end.
const recent = 5 * time.Second

// begin notes the count at the beginning of a run.
func (k *kernelEnds) begin(pid int) {
	if g, err := (pressure.System{}).GroupOf(pid); err == nil {
		k.note(g)
	}
}

func (k *kernelEnds) note(g *pressure.Group) {
	n, ok := g.OOMKills()
	ours, err := (pressure.System{}).GroupOf(os.Getpid())
	if !ok || err != nil {
		return
	}
	now := countedGroup{Group: g, count: n, shared: g.CountsWith(ours), seen: time.Now()}
	k.mu.Lock()
	defer k.mu.Unlock()
	last := len(k.groups) - 1
	if last >= 0 && k.groups[last].CountsWith(g) && g.CountsWith(k.groups[last].Group) {
		if n > k.groups[last].count && !now.shared {
			k.grown = now.seen
		}
		k.groups[last] = now
		return
	}
	k.groups = append(k.groups, now)
	k.groups = k.groups[max(0, len(k.groups)-2):]
}

// judge gives an exit its cause, if the kernel has ended the process for want of memory.
func (k *kernelEnds) judge(e *process.Exit) *process.Exit {
	if e.Signal != 9 || e.Cause != process.CauseSignalled {
		return e
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	found := time.Since(k.grown) < recent
	for _, g := range k.groups {
		if n, ok := g.OOMKills(); ok && n > g.count && (!g.shared || time.Since(g.seen) < recent) {
			found = true
		}
	}
	if !found {
		return e
	}
	out := *e
	out.Cause = process.CauseOOM
	return &out
}
