//go:build linux

package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// retainEvery is how often expired processes are looked for whom nobody asks for.
var retainEvery = 15 * time.Second // a test changes it

// retainSeldom is the same while nothing moves and none expires sooner.
const retainSeldom = time.Minute

// starvedEvery is how often space is made while a filesystem is full.
const starvedEvery = time.Second

// emergency is how many bytes are freed at most at a time when the filesystem
// is full and the budget is not spent.
const emergency = 64 << 20

// grain is the part of the budget by which the spools may grow before they are
// looked at again: 1/grain.
const grain = 16

// perProcess is what a process takes beside output and index, in bytes.
const perProcess = 2 * spool.BlockSize

// grow counts bytes that were added to the spools.
func (m *Manager) grow(n int64) {
	if m.grown.Add(n) >= m.budget.Load()/grain {
		m.tidy()
	}
}

// setBudget sets the budget, and what depends on it.
func (m *Manager) setBudget(n int64) {
	m.budget.Store(n)
	keep, unread := m.cfg.Keep, m.cfg.Keep
	if keep == 0 {
		mem := procfs.Memory()
		keep, unread = keepOf(keepMost, n, mem), keepOf(keepUnread, n, mem)
	}
	m.keep.Store(keep)
	m.keepUnread.Store(unread)
}

// tidy has the spools looked at soon.
func (m *Manager) tidy() { nudge(m.grew) }

// retain keeps all spools within the budget, but for a part of it by which they
// may grow meanwhile, and finished processes within their time. While the
// filesystem is full it makes room, not more often than once in starvedEvery:
// what others keep there may leave nothing to be gained.
func (m *Manager) retain(ctx context.Context) {
	select {
	case <-m.scanned:
	case <-ctx.Done():
		return
	}
	if m.cfg.Budget == 0 {
		_, _, used := m.usage(time.Now())
		m.setBudget(defaultBudget(m.spool, used))
	}
	wait := retainEvery
	t := time.NewTimer(wait)
	defer t.Stop()
	for asked, ticked := false, false; ; {
		m.grown.Store(0)
		expires := m.sweep(ctx, m.budget.Load())
		if ticked {
			wait = retainEvery
			if !m.moved.Swap(false) {
				wait = max(wait, min(expires, retainSeldom))
			}
			t.Reset(wait)
		}
		m.swept.announce()
		var again <-chan time.Time
		short := m.short
		if asked || m.starving() {
			m.makeRoom(ctx)
			again, short = time.After(starvedEvery), nil
		}
		asked, ticked = false, false
		select {
		case <-t.C:
			ticked = true
			m.discoverAll(m.board.Load())
		case <-m.stirred:
			if wait > retainEvery {
				wait = retainEvery
				t.Reset(wait)
			}
		case <-m.grew:
		case <-again:
		case <-short:
			asked = true
		case <-ctx.Done():
			return
		}
	}
}

// Parts of what there is that facts may take, when the output they are of is
// freed: of the budget, and of the filesystem, bytes and inodes.
const (
	factsOfBudget = 4
	factsOfDisk   = 8
)

// bounds are those of all spools, with another budget while space is short. No
// shortness takes facts: a start is refused before that.
func (m *Manager) bounds(budget int64) spool.Bounds {
	b := spool.Bounds{Budget: budget, Facts: max(1, m.budget.Load()/factsOfBudget), TTL: m.cfg.TTL}
	var st unix.Statfs_t
	if unix.Statfs(m.spool, &st) == nil {
		if size := int64(st.Blocks) * st.Bsize; size > 0 {
			b.Facts = min(b.Facts, max(1, size/factsOfDisk))
		}
		b.Processes = int(st.Files / factsOfDisk / 2) // a directory and a journal
	}
	return b
}

// stir notes that a process has moved. It costs one load when that is known.
func (m *Manager) stir() {
	if !m.moved.Load() && !m.moved.Swap(true) {
		nudge(m.stirred)
	}
}

// sweep carries out what is planned, and returns after what time the next finished
// process expires.
func (m *Manager) sweep(ctx context.Context, budget int64) (expires time.Duration) {
	now := time.Now()
	usage, _, _ := m.usage(now)
	bounds := m.bounds(budget)
	expires = 1<<63 - 1
	for _, u := range usage {
		if keep := cmp.Or(u.TTL, bounds.TTL); !u.Live && !u.Pinned && keep > 0 {
			expires = min(expires, max(0, keep-now.Sub(u.FinishedAt)))
		}
	}
	for _, a := range spool.Plan(now, bounds, usage) {
		m.mu.RLock()
		p := m.procs[a.ID]
		m.mu.RUnlock()
		if p == nil {
			continue
		}
		var err error
		switch {
		case a.Remove:
			err = p.expire(ctx)
		case a.Free:
			err = p.free()
		default:
			err = p.Trim(ctx, a.Stream, a.Before)
		}
		if err != nil && !errors.Is(err, process.ErrNotFound) && !errors.Is(err, process.ErrExited) {
			m.cfg.Log.Warn("spool could not be kept within its budget", "id", a.ID, "err", err)
		}
	}
	return expires
}

// usage is what each spool holds, and all of them: of output, and of the disk.
// Times are as if the clock had always gone as it does now: setting the clock makes
// nothing older or younger.
func (m *Manager) usage(now time.Time) (all []spool.Usage, output, disk int64) {
	boot := procfs.BootTime()
	m.mu.RLock()
	order := slices.Clone(m.order)
	m.mu.RUnlock()
	for _, p := range order {
		pr := p.Progress()
		if pr.Removed {
			continue
		}
		spec := p.spec.Load()
		u := spool.Usage{ID: p.id, Owner: spec.Labels[wire.LabelContainer], Live: pr.Exit == nil || p.final.Load() == nil,
			TTL: spec.Retention.TTL, Pinned: p.pinned.Load(),
			Freed: p.left.Load() != nil, Policy: spec.Retention.Policy, Spec: p.size}
		if pr.Exit != nil {
			u.FinishedAt = pr.Exit.Time
		}
		if !u.Live {
			u.FinishedAt = now.Add(-time.Duration(boot - p.ended.Load()))
			u.Disk = p.onDisk()
		}
		for _, s := range p.streams() {
			u.Streams = append(u.Streams, spool.StreamUsage{Stream: s, Base: pr.Base[s], End: pr.End[s]})
			output += pr.End[s] - pr.Base[s]
		}
		// The index of a process whose heads are freed is freed with them, in
		// proportion; its true size is the kernel's to tell.
		if kept, written := keptOf(&u); written > 0 {
			u.Index = int64(float64(pr.IndexEnd) * float64(kept) / float64(written))
			output += u.Index
		}
		disk += u.Bytes()
		all = append(all, u)
	}
	return all, output, disk
}

// onDisk is what a finished process takes of the disk, as the kernel says.
func (p *proc) onDisk() int64 {
	n := p.disk.Load()
	if n == 0 {
		n = spool.DiskUsage(p.dir)
		p.disk.CompareAndSwap(0, n)
	}
	return n
}

// roomWithin bounds how long a start waits for room to be made, or for the spools to be
// looked at.
const roomWithin = 2 * starvedEvery

// await asks for something, and reports whether it was done once more within
// roomWithin.
func await(ctx context.Context, done *pulse, ask func()) bool {
	next := done.wait()
	ask()
	select {
	case <-next:
		return true
	case <-time.After(roomWithin):
	case <-ctx.Done():
	}
	return false
}

// noSpace has room made soon; it does not wait for it.
func (m *Manager) noSpace() { nudge(m.short) }

// starving reports whether output of a process waits for space.
func (m *Manager) starving() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for p := range m.running {
		if p.slot.Flags()&board.FlagNoSpace != 0 {
			return true
		}
	}
	return false
}

// makeRoom frees space on a full filesystem at the expense of finished
// processes' output, a quarter of what is kept at a time, and notifies the keeper.
func (m *Manager) makeRoom(ctx context.Context) {
	if !roomy(m.spool) {
		_, _, total := m.usage(time.Now())
		m.cfg.Log.Warn("the filesystem of the spool is full: output waits, and that of finished processes is freed", "kept", total)
		m.sweep(ctx, min(m.budget.Load(), total-min(total/4, emergency)))
	}
	m.link.notify(wire.OpSpaceFree, nil)
	m.made.announce()
}

// roomy reports whether a filesystem that was full has space again, which then
// others have freed.
func roomy(dir string) bool {
	const enough = 1 << 20
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && int64(st.Bavail)*st.Bsize >= enough && (st.Files == 0 || st.Ffree > 0)
}

// Usage returns the number of known processes, the number of live ones among them, and
// the bytes of stored output.
func (m *Manager) Usage() (known, live int, bytes int64) {
	all, total, _ := m.usage(time.Now())
	for _, u := range all {
		if u.FinishedAt.IsZero() {
			live++
		}
	}
	return len(all), live, total
}

// defaultBudget is a quarter of what is free on the filesystem and what the
// spools hold of it: were it of the free space alone, each start of a server
// would allow less. 64 MiB to 16 GiB.
func defaultBudget(dir string, used int64) int64 {
	const most = 16 << 30
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return most
	}
	return max(min(most, (int64(st.Bavail)*st.Bsize+used)/4), 64<<20)
}

// keptOf is how many bytes of output are kept of how many that were written.
func keptOf(u *spool.Usage) (kept, written int64) {
	for _, s := range u.Streams {
		kept, written = kept+s.End-s.Base, written+s.End
	}
	return kept, written
}
