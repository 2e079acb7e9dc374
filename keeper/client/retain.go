//go:build linux

package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// retainEvery is how often expired processes are looked for.
const retainEvery = 15 * time.Second

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
	if m.grown.Add(n) < m.budget.Load()/grain {
		return
	}
	select {
	case m.grew <- struct{}{}:
	default:
	}
}

// retain keeps all spools within the budget, but for a part of it by which they
// may grow meanwhile, and finished processes within their time. While the
// filesystem is full it makes room, not more often than once in starvedEvery:
// what others keep there may leave nothing to be gained.
func (m *Manager) retain(ctx context.Context) {
	t := time.NewTicker(retainEvery)
	defer t.Stop()
	select {
	case <-m.scanned:
	case <-ctx.Done():
		return
	}
	if m.cfg.Budget == 0 {
		_, held := m.usage(time.Now())
		m.budget.Store(defaultBudget(m.spool, held))
	}
	for asked := false; ; {
		m.grown.Store(0)
		m.sweep(ctx, m.budget.Load())
		var again <-chan time.Time
		short := m.short
		if asked || m.starving() {
			m.makeRoom(ctx)
			again, short = time.After(starvedEvery), nil
		}
		asked = false
		select {
		case <-t.C:
			m.adoptBoard(m.board.Load())
		case <-m.grew:
		case <-again:
		case <-short:
			asked = true
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) sweep(ctx context.Context, budget int64) {
	now := time.Now()
	usage, _ := m.usage(now)
	for _, a := range spool.Plan(now, budget, m.cfg.TTL, usage) {
		m.mu.RLock()
		p := m.procs[a.ID]
		m.mu.RUnlock()
		if p == nil {
			continue
		}
		var err error
		if a.Remove {
			err = p.expire(ctx)
		} else {
			err = p.Trim(ctx, a.Stream, a.Before)
		}
		if err != nil && !errors.Is(err, process.ErrNotFound) && !errors.Is(err, process.ErrExited) {
			m.cfg.Log.Warn("spool could not be kept within its budget", "id", a.ID, "err", err)
		}
	}
}

// usage is what each spool holds. Times are as if the clock had always gone as
// it does now: who sets it makes nothing older or younger.
func (m *Manager) usage(now time.Time) (all []spool.Usage, total int64) {
	boot := spool.BootTime()
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range m.order {
		pr := p.Progress()
		u := spool.Usage{ID: p.id, Live: pr.Exit == nil || p.final.Load() == nil, TTL: p.spec.Retention.TTL, Pinned: p.pinned.Load(), Policy: p.spec.Retention.Policy}
		if pr.Exit != nil {
			u.FinishedAt = pr.Exit.Time
		}
		if !u.Live {
			u.FinishedAt = now.Add(-time.Duration(boot - p.ended.Load()))
		}
		for _, s := range p.streams() {
			u.Streams = append(u.Streams, spool.StreamUsage{Stream: s, Base: pr.Base[s], End: pr.End[s]})
			total += pr.End[s] - pr.Base[s]
		}
		// The index of a process whose heads are freed is freed with them, in
		// proportion; its true size is the kernel's to tell.
		if kept, written := keptOf(&u); written > 0 {
			u.Index = int64(float64(pr.IndexEnd) * float64(kept) / float64(written))
			total += u.Index
		}
		all = append(all, u)
	}
	return all, total
}

// roomWithin bounds how long a start waits for room to be made.
const roomWithin = 2 * starvedEvery

// awaitRoom has room made on a full filesystem, and reports whether it was
// tried.
func (m *Manager) awaitRoom(ctx context.Context) bool {
	m.made.Lock()
	made := m.made.next
	m.made.Unlock()
	m.noSpace()
	t := time.NewTimer(roomWithin)
	defer t.Stop()
	select {
	case <-made:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// noSpace has room made soon; it does not wait for it.
func (m *Manager) noSpace() {
	select {
	case m.short <- struct{}{}:
	default:
	}
}

// starving reports whether output of a process waits for space.
func (m *Manager) starving() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range m.slots {
		if p != nil && p.slot.Flags()&board.FlagNoSpace != 0 {
			return true
		}
	}
	return false
}

// makeRoom frees space on a full filesystem at the expense of finished
// processes, a quarter of what is kept at a time, and tells the keeper.
func (m *Manager) makeRoom(ctx context.Context) {
	if !roomy(m.spool) {
		_, total := m.usage(time.Now())
		m.cfg.Log.Warn("the filesystem of the spool is full: output waits, and the oldest finished processes are removed", "kept", total)
		m.sweep(ctx, min(m.budget.Load(), total-min(total/4, emergency)))
	}
	m.link.tell(wire.OpSpaceFree, nil)
	m.made.Lock()
	close(m.made.next)
	m.made.next = make(chan struct{})
	m.made.Unlock()
}

// roomy reports whether a filesystem that was full has space again, which then
// others have freed.
func roomy(dir string) bool {
	const enough = 1 << 20
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && int64(st.Bavail)*st.Bsize >= enough && (st.Files == 0 || st.Ffree > 0)
}

// Usage is the number of processes known, the live ones among them, and the
// bytes of output kept.
func (m *Manager) Usage() (known, live int, bytes int64) {
	all, total := m.usage(time.Now())
	for _, u := range all {
		if u.FinishedAt.IsZero() {
			live++
		}
	}
	return len(all), live, total
}

// settle bounds how long Remove waits for the kernel to empty the tree of a
// process that has exited: it lags a little behind the exit.
const settle = 200 * time.Millisecond

// Remove implements process.Process.
func (p *proc) Remove(ctx context.Context) error {
	pr := p.final.Load()
	if pr == nil && p.Progress().Exit != nil {
		p.awaitFinal(ctx, settle)
		pr = p.final.Load()
	}
	switch {
	case pr == nil:
		return process.ErrRunning
	case pr.Removed:
		return process.ErrNotFound
	}
	m := p.m
	m.mu.Lock()
	for under := m.starting[p.id]; under != nil; under = m.starting[p.id] {
		m.mu.Unlock()
		select {
		case <-under:
		case <-ctx.Done():
			return ctx.Err()
		}
		m.mu.Lock()
	}
	for {
		if pr = p.final.Load(); pr.Removed {
			m.mu.Unlock()
			return process.ErrNotFound
		}
		gone := *pr
		gone.Removed = true
		if p.final.CompareAndSwap(pr, &gone) { // else it was trimmed
			break
		}
	}
	// The id is free when its files are gone.
	defer m.hold(p.id)()
	delete(m.procs, p.id)
	for i, o := range m.order {
		if o == p {
			m.order = append(m.order[:i], m.order[i+1:]...)
			break
		}
	}
	m.mu.Unlock()
	failpoint.Hit(failpoint.Removed)
	err := p.removeDir()
	p.changed()
	m.watchers.Tell(process.Event{Kind: process.EventRemoved, ID: p.id, PID: p.pid, Time: time.Now()})
	return err
}

// awaitFinal waits until nothing about the process can change any more.
func (p *proc) awaitFinal(ctx context.Context, bound time.Duration) {
	ready := make(chan struct{}, 1)
	defer p.listen(ready)()
	t := time.NewTimer(bound)
	defer t.Stop()
	for p.final.Load() == nil {
		select {
		case <-ready:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// trimFinished frees the head of a finished stream. The keeper has forgotten
// the process, so its files are ours.
func (p *proc) trimFinished(s process.Stream, before int64) error {
	for {
		pr := p.final.Load()
		if pr.Removed {
			return process.ErrNotFound
		}
		if before < 0 || before > pr.End[s] {
			return process.ErrOffset
		}
		base := before &^ (spool.BlockSize - 1)
		if base <= pr.Base[s] {
			return nil
		}
		next := *pr
		next.Base[s] = base
		if !p.final.CompareAndSwap(pr, &next) {
			continue
		}
		fd, err := unix.Open(filepath.Join(p.dir, spool.IndexName), unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
		if err == nil {
			var rec [spool.IndexSize]byte
			spool.IndexRecord{Kind: spool.IndexTrim, Stream: s, Offset: base, Wall: time.Now().UnixNano()}.Put(&rec)
			_, err = unix.Write(fd, rec[:])
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
		failpoint.Hit(failpoint.FinishedTrimmed)
		data, err := spool.OpenStream(p.dir, s)
		if err != nil {
			return err
		}
		defer unix.Close(data)
		return spool.Punch(data, pr.Base[s], base)
	}
}

// Pin implements process.Process.
func (p *proc) Pin(ctx context.Context, pinned bool) error {
	p.pins.Lock()
	defer p.pins.Unlock()
	err := process.ErrExited
	if p.final.Load() == nil {
		_, _, err = p.call(ctx, wire.OpPin, true, func(e *wire.Enc) {
			if pinned {
				e.U8(1)
			} else {
				e.U8(0)
			}
		})
		if errors.Is(err, process.ErrExited) {
			p.awaitFinal(ctx, settle) // over a moment ago: the keeper leaves its files to us
		}
	}
	if pr := p.final.Load(); pr != nil && errors.Is(err, process.ErrExited) {
		if pr.Removed {
			return process.ErrNotFound
		}
		err = appendJournal(p.dir, spool.AppendPinned(nil, time.Now(), pinned))
	}
	if err == nil {
		p.pinned.Store(pinned)
	}
	return err
}

// expire removes the process unless it was pinned a moment ago.
func (p *proc) expire(ctx context.Context) error {
	p.pins.Lock()
	defer p.pins.Unlock()
	if p.pinned.Load() {
		return nil
	}
	return p.Remove(ctx)
}

// writeLost appends the lost exit to a journal.
func writeLost(dir string, e *process.Exit) error {
	return appendJournal(dir, spool.AppendExited(nil, e.Time, e))
}

// appendJournal appends a record to the journal of a process that is over, or
// nothing: half a record would hide what follows.
func appendJournal(dir string, rec []byte) error {
	fd, err := unix.Open(filepath.Join(dir, spool.JournalName), unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, rec)
	if err == nil && n < len(rec) {
		err = unix.ENOSPC
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			_ = unix.Ftruncate(fd, st.Size-int64(n)) // if not, repair cuts it off
		}
	}
	return err
}

// defaultBudget is a quarter of what is free on the filesystem and what the
// spools hold of it: were it of the free space alone, each start of a server
// would allow less. 64 MiB to 16 GiB.
func defaultBudget(dir string, held int64) int64 {
	const most = 16 << 30
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return most
	}
	return max(min(most, (int64(st.Bavail)*st.Bsize+held)/4), 64<<20)
}

// keptOf is how many bytes of output are kept of how many that were written.
func keptOf(u *spool.Usage) (kept, written int64) {
	for _, s := range u.Streams {
		kept, written = kept+s.End-s.Base, written+s.End
	}
	return kept, written
}

// endedAt is when a process was over on CLOCK_BOOTTIME, in ns. The journal knows
// it of one that started since the machine was booted; the age of others is what
// the clock on the wall says now, and not less than nothing.
func endedAt(j *spool.Journal) int64 {
	boot := spool.BootTime()
	if j.ExitBoot > 0 && j.ExitBoot <= boot && j.Started != nil && j.Started.BootID != "" && j.Started.BootID == bootID() {
		return j.ExitBoot
	}
	return boot - max(time.Since(j.Exit.Time), 0).Nanoseconds()
}

var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})
