package run

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/internal/observe/pressure"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
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
func (w *worker) awaitPressure(ctx context.Context, tree runTree, n int64, declared *config.Service, ends *kernelEnds) {
	var sys pressure.System
	var judge pressure.Judge
	rules, interval := pressureRules(declared.Pressure), declared.Pressure.Interval.Std()
	dirs := []string{declared.Cwd, w.s.c.Dir}
	if declared.Sandbox != "" { // whose files are kept beside ours
		dirs = dirs[1:]
	}
	stalls := make(chan struct{}, 1)
	untold := rules.Stalls && rules.Memory > 0
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
		g, pids := tree.members(ctx)
		if g == nil {
			timer.Reset(interval)
			continue
		}
		if ends.note(g) {
			w.tell(supervisor.Event{Kind: supervisor.Starved, Run: n})
		}
		if untold {
			untold = false
			if t, err := sys.Trigger(g); err == nil {
				w.s.wg.Go(func() { tellStalls(ctx, t, stalls) })
			}
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

// runTree finds the processes of a run.
type runTree struct {
	run     int64 // its number; 0: none is known
	p       process.Process
	leader  int             // the pid of its command
	session int             // in which that was started
	own     *pressure.Group // that was made for the run; nil: none is known
	pids    func() []int    // of a run that was adopted: it has no group of its own; nil: it was not
}

// group returns the control groups of the command; nil: it has ended, and its pid may be
// another program's by now.
func (t *runTree) group(ctx context.Context) *pressure.Group {
	if in, err := t.p.Info(process.Brief(ctx)); err != nil || in.Exit != nil {
		return nil
	}
	g, err := pressure.System{}.GroupOf(t.leader)
	if err != nil {
		return nil // it has just ended
	}
	if t.own = nil; t.pids != nil {
		return g
	}
	if s, ok := procfs.ReadStat(t.leader); ok {
		if pids := g.Members(); len(pids) > 0 && !slices.Contains(pids, s.PPID) {
			t.own = g
		}
	}
	return g
}

// members returns the processes of the run, and the control groups of one of them; nil: none
// is found. A service that forks lives on without its command: what is in its own group
// then, or in its session. The kernel gives nobody the number of a session that has members.
func (t *runTree) members(ctx context.Context) (g *pressure.Group, pids []int) {
	g = t.group(ctx)
	if t.own != nil {
		pids = t.own.Members()
	}
	switch {
	case t.pids != nil:
		pids = t.pids()
	case len(pids) == 0:
		pids = observe.Tree(t.leader, t.session)
	}
	if g != nil {
		return g, pids
	}
	if slices.Contains(pids, t.leader) { // another program
		return nil, nil
	}
	for _, pid := range pids {
		if g, err := (pressure.System{}).GroupOf(pid); err == nil {
			return g, pids
		}
	}
	return nil, nil
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
	// own: the run has a limit of its own, and so a group that counts its processes alone.
	own bool

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

// note looks at the count of a group in which the run is. It reports whether the kernel has
// killed a process of the run since the last look, which is known of a group of its own.
func (k *kernelEnds) note(g *pressure.Group) (killed bool) {
	n, ok := g.OOMKills()
	ours, err := (pressure.System{}).GroupOf(os.Getpid())
	if !ok || err != nil {
		return false
	}
	now := countedGroup{Group: g, count: n, shared: g.CountsWith(ours), seen: time.Now()}
	k.mu.Lock()
	defer k.mu.Unlock()
	last := len(k.groups) - 1
	if last >= 0 && k.groups[last].CountsWith(g) && g.CountsWith(k.groups[last].Group) {
		if n > k.groups[last].count && !now.shared {
			k.grown, killed = now.seen, true
		}
		k.groups[last] = now
		return killed && k.own
	}
	k.groups = append(k.groups, now)
	k.groups = k.groups[max(0, len(k.groups)-2):]
	return false
}

// again looks at the count of the group that was looked at last.
func (k *kernelEnds) again() (killed bool) {
	k.mu.Lock()
	var g *pressure.Group
	if k.own && len(k.groups) > 0 {
		g = k.groups[len(k.groups)-1].Group
	}
	k.mu.Unlock()
	return g != nil && k.note(g)
}

// judge gives an exit its cause, if the kernel has ended the process for want of memory.
func (k *kernelEnds) judge(e *process.Exit) *process.Exit {
	killed := e.Signal == 9 && e.Cause == process.CauseSignalled
	if !killed && (e.Signal != 0 || e.Code != 128+9 || e.Cause != process.CauseExited) { // as a shell says it of its child
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
