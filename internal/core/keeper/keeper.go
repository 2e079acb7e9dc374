//go:build linux

// Package keeper owns the processes: it spawns them, moves their output into the spool,
// feeds their stdin, reaps them and ends them. It knows only the protocol of package
// wire, and no policy except the limits in a spec.
//
// # What it holds
//
// For each process a few integers (see proc): no goroutine, no buffer. One epoll
// instance watches all pipes and pidfds; a fixed number of workers takes events from
// it, each armed once (EPOLLONESHOT), so that a worker blocked in the filesystem's
// writeback does not block other processes.
//
// # Why nothing is lost when it is killed
//
// Bytes move by splice(2) from the pipe to an explicit offset of the spool file: a kill
// takes effect between system calls, or inside splice at a page boundary where exactly
// the written bytes were consumed. The next keeper continues at the file's size. All
// descriptors are also in two vaults, the anchor's and the launcher's, so no pipe
// breaks meanwhile; the board (package board) is a memfd in the same vaults. Exit
// statuses of processes whose keeper died are collected by the anchor or the launcher,
// whose children they become (package reaplog).
//
// # From one keeper to the next
//
// There is one way to take over (takeOver), after a death and after an upgrade. These
// files implement it, in the order of the steps:
//
//	freeze.go     for an upgrade: all work stops
//	upgrade.go    the new program is executed in place
//	handover.go   it gets the numbers of the descriptors, and the state that is not on disk
//	hold.go       the lock of the role, even if children of a dead keeper still hold it
//	takeover.go   the descriptors of the keeper before, handed over or from the vaults
//	rebuild.go    its board, made again if it is damaged
//	restore.go    each process that was started
//	halfstart.go  each process whose start was under way
//
// After a death the spool is repaired (spool.RecoverFrom) and compared with the board.
// A keeper that handed over had stopped its work, so both are consistent. There is no
// other difference.
//
// # Order of announcements
//
// data file → index record → board → wake. For retention: board (base) →
// index record → punch. For the exit: journal → disk, if the process asks for it
// (syncer) → board → wake.
//
// # Locks
//
// Keeper.mu guards ids and free; proc.mu guards one process. proc.mu is taken
// first; a proc.mu is never taken while Keeper.mu is held. syncer.mu is taken last.
package keeper

import (
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/dirpool"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/gomonitor"
	"github.com/tend-run/tend/internal/core/idletrim"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// DefaultLimit is the number of bytes kept of each output stream when the spec
// does not say.
const DefaultLimit int64 = 4 << 30

// shutdownGrace is the time between SIGTERM and SIGKILL at shutdown.
const shutdownGrace = 2 * time.Second

// Config of a keeper.
type Config struct {
	StateDir string // absolute
	// Vault is a socket to the anchor, or -1.
	Vault int
	// Handover is a descriptor of what the keeper before left in this same
	// process, or 0: an upgrade in place.
	Handover int
	Environ  []string // for the program of an upgrade, "K=V"
	// Log receives one line for each event worth an operator's time.
	Log io.Writer
}

// Keeper is the role's state.
type Keeper struct {
	cfg        Config
	spool      string
	run        *rundir.Dir
	lock       int          // of the role
	unborn     map[int]bool // children of a former keeper that were killed before their programs
	identity   identity
	ep         int
	board      *board.Board
	wakeFD     int
	listen     int
	null       int // /dev/null, for processes without input
	vaults     fdstore.Pair
	groups     *cgroup.Tree
	line       lineage
	lastFile   lastFile
	scripts    *spawn.Starter
	containers containers
	spares     *dirpool.Pool
	stats      machine
	births     *strangers
	syncs      *syncer
	vaulted    fdstore.Epochs // of the global descriptors
	cached     atomic.Int32   // open spool files
	starting   atomic.Int32   // starts that hold descriptors they may free again
	alone      chan struct{}  // one value while a start is tried again alone

	mu    sync.Mutex
	ids   map[process.ID]*proc // guarded by mu
	free  []uint32             // slots, last one first; guarded by mu
	fresh uint32               // the first slot that was never used; guarded by mu
	procs [board.Slots]atomic.Pointer[proc]

	stopping atomic.Bool
	still    atomic.Pointer[stillness] // an upgrade under way, or nil
	crew     int                       // workers
	upgrades int64
	began    int64         // CLOCK_BOOTTIME, ns: the last upgrade
	last     time.Duration // that it took
	// unsettled are the starts in whose middle a former keeper died.
	unsettled []func()
	settled   chan struct{} // closed when that is done
	broken    chan error    // why this keeper cannot go on
	boards    boardWatch
	rest      *idletrim.Trimmer
}

// Run takes over what a keeper before left in the vault, serves until SIGTERM,
// ends all processes then, and returns.
func Run(cfg Config) (err error) {
	k := &Keeper{cfg: cfg, spool: filepath.Join(cfg.StateDir, rundir.SpoolDir), ids: map[process.ID]*proc{}, unborn: map[int]bool{},
		alone: make(chan struct{}, 1), settled: make(chan struct{}), births: newStrangers(), listen: -1, wakeFD: -1,
		broken: make(chan error, 1), boards: newBoardWatch()}
	if k.run, err = rundir.Open(cfg.StateDir); err != nil {
		return err
	}
	term := notifyTerm() // it may come before we can obey
	k.run.SetLastWords("keeper", nil)
	defer func() {
		if err != nil {
			k.run.SetLastWords("keeper", err)
		}
	}()
	if err := os.MkdirAll(k.spool, 0o700); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	k.syncs = &syncer{k: k}
	if k.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("/dev/null: %w", err)
	}
	k.lastFile.keep()
	if k.scripts, err = spawn.New(k.null); err != nil { // before anything else that takes low descriptors
		return fmt.Errorf("this machine starts no programs: %w", err)
	}
	if err := k.takeOver(); err != nil {
		return err
	}
	if cfg.Handover > 0 {
		failpoint.Hit(failpoint.UpgradeRestored)
		k.last = time.Duration(procfs.BootTime() - k.began)
		k.logf("went on in place with %d processes after %v", len(k.ids), k.last)
	}
	unsignalled()
	k.spares = dirpool.New(k.spool, k.stats.files)
	k.crew = min(max(2, runtime.NumCPU()), 8)
	go func() {
		var wg sync.WaitGroup
		for _, settle := range k.unsettled {
			wg.Go(settle)
		}
		wg.Wait()
		k.strays(nil) // ends helpers that a keeper before left
		close(k.settled)
		k.stats.filesystem()
		k.spares.Fill() // not before: a start may still need a former keeper's directory
	}()
	k.rest = idletrim.New()
	defer k.rest.Close()
	k.vaults[fdstore.Mirror].OnLost = k.findMirror
	if !k.vaults[fdstore.Mirror].Connected() {
		k.findMirror()
	}
	for range k.crew {
		go k.work()
	}
	go k.accept()
	go k.acceptAnchors()
	go k.watchBoard()
	go k.watchHoards()
	go k.weighContainers()
	go k.sweepStrangers()
	select {
	case <-term:
	case err := <-k.broken:
		return err
	}
	k.shutdown()
	return nil
}

// identify determines our identity and the abilities of this machine. takesOver: a
// previous keeper has left processes.
func (k *Keeper) identify(takesOver bool) {
	var err error
	if k.identity, err = openIdentity(k.cfg.StateDir, takesOver); err != nil {
		k.logf("%v", err)
	}
	k.markRole(0)
	k.groups = cgroup.Find(k.identity.group)
	k.stats = probeMachine(k.spool)
}

func (k *Keeper) logf(format string, a ...any) {
	fmt.Fprintf(k.cfg.Log, "tend keeper[%d]: "+format+"\n", append([]any{os.Getpid()}, a...)...)
}

// What an epoll event is about.
const (
	onOut0 = iota // stdout or the terminal
	onOut1        // stderr
	onStdin
	onPid
	onTree // cgroup.events
)

// onMirror is the event number, instead of a slot, for a hang-up of the launcher.
// onFreeze: the workers must stop for an upgrade.
const (
	onMirror = board.Slots << 3
	onFreeze = onMirror + 1
)

func (k *Keeper) watch(op int, fd int, events uint32, p *proc, what int) error {
	return unix.EpollCtl(k.ep, op, fd, &unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(p.ref.Slot)<<3 | int32(what),
		Pad: int32(p.ref.Gen)})
}

func (k *Keeper) unwatch(fd int) { unix.EpollCtl(k.ep, unix.EPOLL_CTL_DEL, fd, nil) }

// work takes events for ever. Four at a time: a worker that is held up by the
// filesystem holds up at most three others' events.
func (k *Keeper) work() {
	var events [4]unix.EpollEvent
	var loop gomonitor.Loop
	for {
		loop.Turn()
		n, err := unix.EpollWait(k.ep, events[:], -1)
		if err != nil && err != unix.EINTR {
			k.logf("epoll: %v", err)
			time.Sleep(time.Second)
		}
		for _, ev := range events[:max(n, 0)] {
			switch ev.Fd {
			case onMirror:
				k.vaults[fdstore.Mirror].Disconnect()
				continue
			case onFreeze:
				continue
			}
			k.boards.stir()
			p := k.procs[uint32(ev.Fd)>>3].Load()
			if p == nil || p.ref.Gen != uint32(ev.Pad) {
				continue
			}
			k.handleEvent(p, int(ev.Fd&7), ev.Events)
		}
		k.standStill()
	}
}

// handleEvent handles one event. An exit makes three events at once: two of the streams
// and one of the pidfd. Three workers take them. A worker that finds another one
// at work on the process leaves its event to that one, and does not wait.
func (k *Keeper) handleEvent(p *proc, what int, events uint32) {
	const taken = 1 << 31
	ends := what == onPid || events&(unix.EPOLLIN|unix.EPOLLOUT) == 0
	if ends && p.ending.Or(taken|1<<what)&taken != 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ends {
		k.handle(p, what, events)
		return
	}
	for !p.ending.CompareAndSwap(taken, 0) {
		for left := p.ending.Swap(taken) &^ taken; left != 0; left &= left - 1 {
			// Only pipes and terminals have more than one kind of these events. An
			// event without bytes and without room is a hang-up.
			k.handle(p, bits.TrailingZeros32(left), unix.EPOLLHUP)
		}
	}
}

// handle does what an event asks for. p.mu is held.
func (k *Keeper) handle(p *proc, what int, events uint32) {
	if !k.owns(p) {
		return
	}
	switch what {
	case onOut0, onOut1:
		if k.isInput(p, what, events) {
			k.feed(p)
		}
		if events&(unix.EPOLLIN|unix.EPOLLHUP) == unix.EPOLLHUP && exitFollows(p) {
			k.onPidfd(p)
		}
		k.pump(p, &p.out[what])
	case onStdin:
		k.feed(p)
	case onPid:
		k.onPidfd(p)
	case onTree:
		k.checkTree(p)
	}
}

// exitFollows reports whether a pipe broke because its process is exiting. This is
// the usual case: the kernel closes files a moment before it reports the exit.
// Then one announcement is enough for both facts.
func exitFollows(p *proc) bool {
	return !p.exited && p.pidfd >= 0 && pidfd.Ended(p.pidfd, 1)
}

// isInput reports whether an event is for the input: a terminal has one descriptor
// for both directions.
func (k *Keeper) isInput(p *proc, what int, events uint32) bool {
	return what == onOut0 && p.pty && events&unix.EPOLLOUT != 0
}

// announce wakes the server for a slot that has changed.
func (k *Keeper) announce(p *proc) {
	if k.board.Mark(p.ref.Slot) {
		one := [8]byte{1}
		unix.Write(k.wakeFD, one[:])
	}
}

// reserve takes a slot for a new process. It fails when the id is taken by a
// process that the keeper still knows.
func (k *Keeper) reserve(id process.ID) (*proc, *wire.Error, *proc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.ids[id]; old != nil {
		return nil, nil, old
	}
	if len(k.free) == 0 && k.fresh < board.Slots {
		k.free = append(k.free, k.fresh)
		k.fresh++
	}
	if len(k.free) == 0 {
		return nil, &wire.Error{Code: wire.CodeLimit,
			What: fmt.Sprintf("%d processes are live or not yet collected; that is the limit of one keeper", board.Slots)}, nil
	}
	slot := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	s := k.board.Slot(slot)
	p := newProc(wire.Ref{Slot: slot, Gen: s.Reserve(id)}, id, s)
	p.began = procfs.BootTime()
	s.NoteReserved(p.began)
	k.ids[id] = p
	k.procs[slot].Store(p)
	return p, nil, nil
}

// name makes p, which a former keeper started, the process with its id. A removed
// process keeps its slot until the server gives the slot back. By then a later
// process may have the same id.
func (k *Keeper) name(p *proc) {
	old := k.ids[p.id]
	if old == nil || old.slot.Flags()&board.FlagFinal != 0 && (p.slot.Flags()&board.FlagFinal == 0 ||
		p.slot.Started().After(old.slot.Started())) {
		k.ids[p.id] = p
	}
}

// release gives the slot back. p must have no descriptors left.
func (k *Keeper) release(p *proc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids[p.id] == p {
		delete(k.ids, p.id)
	}
	if k.procs[p.ref.Slot].CompareAndSwap(p, nil) {
		p.slot.Release()
		k.groups.Place(p.ref.Slot, nil)
		k.free = append(k.free, p.ref.Slot)
	}
}

// all yields the processes that are known.
func (k *Keeper) all(yield func(*proc) bool) {
	for i := range k.procs {
		if p := k.procs[i].Load(); p != nil && !yield(p) {
			return
		}
	}
}

// lookup finds a process by reference; nil if the slot has another owner now.
func (k *Keeper) lookup(r wire.Ref) *proc {
	if r.Slot >= board.Slots {
		return nil
	}
	if p := k.procs[r.Slot].Load(); p != nil && p.ref == r {
		return p
	}
	return nil
}
