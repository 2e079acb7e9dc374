//go:build linux

package keeper

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// proc is one process, from the reservation of its slot until the server has
// retired it. Deliberately small: there may be thousands. A descriptor that is
// not open is -1.
type proc struct {
	mu     sync.Mutex
	ending atomic.Uint32 // events of an exit that a worker has taken; see take
	ref    wire.Ref
	id     process.ID
	slot   board.Slot
	dir    string

	pid     int
	pidfd   int
	pty     bool
	began   int64 // CLOCK_BOOTTIME, ns: it started later; 0: not known
	started bool  // the program runs; what follows is guarded by mu
	exited  bool
	gone    bool // the tree is empty
	letGo   bool // nobody waits for the tree any more; see forget.go
	final   bool

	out   [2]outStream
	sizes sizes // of its terminal
	stdin input

	vaulted  fdstore.Epochs // the vaults' in which all descriptors were deposited
	deferred []byte         // journal records that found no room yet
	journal  int            // spool files, opened at need and closed under pressure
	index    int
	indexEnd int64
	// indexBase: the records before it are freed. A next keeper looks again.
	indexBase int64

	overflow bool // drain is under way: no limit holds

	// nobodyKnown: the last check found no process of the tree, but there may be strays.
	// traced: a timer will look for the exit again, after tracedFor: a tracer has it.
	traced    bool
	tracedFor time.Duration
	// looking: a timer will check again, after pause.
	nobodyKnown bool
	looking     bool
	pause       time.Duration

	treeFD int // cgroup.events, watched after the exit while somebody is left
	group  bool

	container atomic.Pointer[heldContainer] // in which it runs; nil: on this machine
	inner     uint32                        // its pid there; 0: not known

	retrying bool  // a timer will resume the streams that wait
	stuck    error // why the filesystem last refused something, while retrying or deferred

	sync         process.Sync
	dirty        bool          // written since the last sync began; only with a policy
	busy         bool          // a sync is under way
	queued       bool          // for a sync; guarded by syncer.mu
	pendingExit  *process.Exit // in the journal; published when it is on the disk
	pendingFlags uint32        // flags to be published after it

	limit  int64
	policy process.RetentionPolicy

	// cause of the death that the keeper itself brought about, and the signal.
	cause    process.Cause
	causeSig int
	timer    *time.Timer
	// hasTreeTimeout: the timeout is for the tree and outlives the leader.
	hasTreeTimeout bool
}

// session is the number of the session and the process group in which it was started.
func (p *proc) session() int {
	if n := p.slot.Session(); n != 0 {
		return n
	}
	return p.pid
}

// outStream is one output stream. A process with a terminal has one, with a
// staging pipe: a terminal cannot be spliced to a file directly.
type outStream struct {
	stream    process.Stream
	fd        int // reading end of the pipe, or the terminal's master
	stageR    int
	stageW    int
	file      int
	base      int64
	unpunched int64 // freed from here on, but not punched yet; base if nothing is
	end       int64
	filled    uint8  // times in a row a full pipe was found
	fallback  bool   // this filesystem cannot be spliced to
	rest      []byte // fallback: read from the pipe, and not written yet
	waiting   bool   // not armed: at its limit with policy block, or starved
	full      bool   // waiting for space on the filesystem
	eof       bool
}

// input is the side of stdin.
type input struct {
	fd    int // writing end of the pipe; for a terminal out[0].fd
	mem   int // memfd whose file position is the next byte to deliver
	feedR int // staging pipe, terminals only
	feedW int
	open  bool
	armed bool // an EPOLLOUT is outstanding
	// recorded is what the journal says about it.
	recorded        spool.Input
	writersRecorded bool
}

func newProc(ref wire.Ref, id process.ID, s board.Slot) *proc {
	p := &proc{ref: ref, id: id, slot: s, pidfd: -1, journal: -1, index: -1, treeFD: -1, limit: DefaultLimit,
		sizes: sizes{due: true, left: sizeBurst}}
	for i := range p.out {
		p.out[i] = outStream{stream: process.Stream(i + 1), fd: -1, stageR: -1, stageW: -1, file: -1, eof: true}
	}
	p.stdin = input{fd: -1, mem: -1, feedR: -1, feedW: -1}
	return p
}

// setSpec takes over what the keeper needs to remember of a spec.
func (p *proc) setSpec(s *process.Spec) {
	p.pty = s.PTY != nil
	if s.Retention.Limit > 0 {
		p.limit = s.Retention.Limit
	}
	p.policy = s.Retention.Policy
	if p.pty {
		p.out[0].stream = process.PTY
	}
}

// openJournal, openIndex and openFile open spool files at need.
func (k *Keeper) openJournal(p *proc) (int, error) {
	return k.openCached(&p.journal, filepath.Join(p.dir, spool.JournalName), unix.O_APPEND)
}

func (k *Keeper) openIndex(p *proc) (int, error) {
	return k.openCached(&p.index, filepath.Join(p.dir, spool.IndexName), 0)
}

func (k *Keeper) openFile(p *proc, s *outStream) (int, error) {
	return k.openCached(&s.file, filepath.Join(p.dir, spool.FileName(s.stream)), 0)
}

func (k *Keeper) openCached(fd *int, path string, flags int) (int, error) {
	if *fd >= 0 {
		return *fd, nil
	}
	n, err := k.again(func() (int, error) { return spool.OpenFile(path, unix.O_RDWR|unix.O_CREAT|flags) })
	if err != nil {
		return -1, err
	}
	*fd = n
	if int(k.cached.Add(1)) > k.stats.cacheFiles {
		k.shedFiles()
	}
	return n, nil
}

// again opens a file, once more if there was no descriptor.
func (k *Keeper) again(open func() (int, error)) (int, error) {
	fd, err := open()
	if err == unix.EMFILE || err == unix.ENFILE {
		k.shedFiles()
		fd, err = open()
	}
	return fd, err
}

// shedFiles closes the spool files of all processes that no worker handles now; they
// are reopened when needed.
func (k *Keeper) shedFiles() {
	for p := range k.all {
		if p.mu.TryLock() {
			k.closeFiles(p)
			p.mu.Unlock()
		}
	}
}

func (k *Keeper) closeFiles(p *proc) {
	for _, fd := range []*int{&p.journal, &p.index, &p.out[0].file, &p.out[1].file} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
			k.cached.Add(-1)
		}
	}
}

func closeFD(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}
