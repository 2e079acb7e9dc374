//go:build linux

package keeper

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// syncEvery is how long output of a process with SyncInterval may wait before
// it is forced to the disk.
const syncEvery = time.Second

// maxSyncs bounds how many fsyncs run at once. Journaling filesystems commit
// those of one moment together, so a few at once cost hardly more than one.
const maxSyncs = 8

// syncer forces spools to the disk, on goroutines of its own: a worker never
// waits for the disk. Which processes it serves is on the board (FlagSync*),
// so a keeper that takes over continues with it. A process becomes final only after
// its last sync, so none is forgotten.
type syncer struct {
	k *Keeper

	mu      sync.Mutex
	queue   []*proc // guarded by mu
	later   []*proc // wait for the next interval; guarded by mu
	running int     // goroutines; guarded by mu
	ticking bool    // a timer will queue later; guarded by mu

	failures int    // guarded by mu
	last     string // failure; guarded by mu
}

// now queues a process, once.
func (s *syncer) now(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(p)
}

// add: s.mu is held.
func (s *syncer) add(p *proc) {
	if p.queued {
		return
	}
	p.queued = true
	s.queue = append(s.queue, p)
	if s.running < maxSyncs {
		s.running++
		go s.run()
	}
}

// soon queues a process at the end of the interval.
func (s *syncer) soon(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, p)
	if s.ticking {
		return
	}
	s.ticking = true
	time.AfterFunc(syncEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ticking = false
		for _, p := range s.later {
			s.add(p)
		}
		s.later = nil
	})
}

// run works until the queue is empty.
func (s *syncer) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		p := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		// The flag is cleared first, so that bytes written meanwhile count as new.
		p.mu.Lock()
		p.dirty, p.busy = false, true
		dir := p.dir
		p.mu.Unlock()
		err := s.k.syncSpool(dir) // one sync of a process runs at a time
		s.mu.Lock()
		p.queued = false
		if err != nil {
			s.failures++
			s.last = fmt.Sprintf("process %s: %v", p.id, err)
		}
		s.mu.Unlock()
		s.k.synced(p, err)
		s.mu.Lock()
	}
	s.running--
}

// trouble says what failed so far; "" if nothing did.
func (s *syncer) trouble() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == 0 {
		return ""
	}
	return fmt.Sprintf("fsync failed %d times, so what it was for may be lost with the power; the last: %s", s.failures, s.last)
}

// syncSpool forces the files of one process, their names, and the name of their
// directory to the disk. All are tried, and the first error is returned: the
// kernel reports each failure once, so that a second try would prove nothing.
func (k *Keeper) syncSpool(dir string) (failed error) {
	try := func(path string, flush func(fd int) error) {
		fd, err := k.again(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0) })
		if err == unix.ENOENT { // a stream without a byte, or all of it was removed
			return
		}
		if err == nil {
			defer unix.Close(fd)
			err = eintr.Do(func() error { return flush(fd) })
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("fsync %s: %w", path, err)
		}
	}
	for _, s := range []process.Stream{process.Stdout, process.Stderr, process.PTY} {
		try(filepath.Join(dir, spool.FileName(s)), unix.Fdatasync)
	}
	try(filepath.Join(dir, spool.IndexName), unix.Fdatasync)
	// The journal after what its facts are about.
	try(filepath.Join(dir, spool.JournalName), unix.Fdatasync)
	try(dir, unix.Fsync)
	try(k.spool, unix.Fsync)
	return failed
}

// setSync takes over a policy, on the board too. p.mu is held.
func (p *proc) setSync(s process.Sync) {
	p.sync = s
	noteSync(p.slot, s)
}

func noteSync(slot board.Slot, s process.Sync) {
	switch s {
	case process.SyncExit:
		slot.Set(board.FlagSyncExit)
	case process.SyncInterval:
		slot.Set(board.FlagSyncInterval)
	}
}

// restoreSync takes over the policy that is on the board. What a former keeper
// did not come to is done again, once the workers run: see resumeSync.
func (p *proc) restoreSync() {
	switch flags := p.slot.Flags(); {
	case flags&board.FlagSyncExit != 0:
		p.sync = process.SyncExit
	case flags&board.FlagSyncInterval != 0:
		p.sync = process.SyncInterval
	}
	p.dirty = p.sync > process.SyncNone
}

// resumeSync does what restoreSync found that is still to be done.
func (k *Keeper) resumeSync(p *proc) {
	switch {
	case p.pendingExit != nil:
		k.syncs.now(p)
	case p.sync == process.SyncInterval && p.dirty:
		k.syncs.soon(p)
	}
}

// wrote notes that something new is in the spool. p.mu is held.
func (k *Keeper) wrote(p *proc) {
	if p.sync <= process.SyncNone || p.dirty {
		return
	}
	p.dirty = true
	if p.sync == process.SyncInterval {
		k.syncs.soon(p)
	}
}

// publish puts flags on the board. While the exit, which comes before them, waits for
// the disk, the flags wait, too. p.mu is held.
func (p *proc) publish(flags uint32) {
	if p.pendingExit != nil {
		p.pendingFlags |= flags
		return
	}
	p.slot.Set(flags)
}

// synced continues after a sync. The exit is published even if the sync failed, because
// a process that never ends would be worse; the failure is also reported.
func (k *Keeper) synced(p *proc, err error) {
	if err != nil {
		k.logf("process %s: not on the disk: %v", p.id, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	if p.dirty && p.sync == process.SyncInterval {
		k.syncs.soon(p)
	}
	told := p.pendingExit == nil
	if !told {
		if len(p.deferred) > 0 {
			k.logf("process %s: its exit is reported before it is on the disk, which has no room for it", p.id)
		}
		failpoint.Hit(failpoint.ExitSynced)
		p.slot.SetExit(p.pendingExit)
		p.pendingExit = nil
		p.slot.Set(p.pendingFlags)
		p.pendingFlags = 0
	}
	k.checkTree(p)
	k.finish(p)
	if !told && !p.final {
		k.announce(p)
	}
}
