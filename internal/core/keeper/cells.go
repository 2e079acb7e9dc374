//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/cell"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/seccomp"
	"github.com/tend-run/tend/process"
)

// cells are the boxes, by ID. Locks: inhabited.mu is taken before a proc.mu, and cells.mu
// is taken last and for a moment.
type cells struct {
	maker *cell.Maker
	why   error         // then there is no maker
	room  chan struct{} // one value for each that is just being made or ended

	board    func() (memory []byte, fd int) // in which starts are written down
	resetOOM bool                           // programs have another OOM score than the keeper

	mu   sync.Mutex
	all  map[box.ID]*inhabited // guarded by mu
	some sync.Cond             // there is a box; its lock is mu
	of   map[uint32]*inhabited // of slots, until their processes are restored; guarded by mu

	denied  seccomp.Filter // nil: not made yet; guarded by mu
	ruleset int            // of Landlock; 0: not made yet; guarded by mu
}

// inhabited is a box with its programs. Starting a program holds mu for reading;
// creating, freezing or ending the box holds it for writing.
type inhabited struct {
	id     box.ID
	ending atomic.Bool  // nothing starts any more
	first  atomic.Int32 // pid of pid 1; 0: there is none

	mu     sync.RWMutex
	cell   *cell.Cell    // nil: not made, or ended; guarded by mu
	frozen bool          // guarded by mu
	net    sync.Mutex    // one asks for the network at a time; after mu
	zygote *spawn.Zygote // of cell
}

// name is for the log.
func (b *inhabited) name() string {
	if b.id == "" {
		return "a sandbox without a file"
	}
	return "sandbox " + string(b.id)
}

// mostAtOnce bounds how many boxes are made or ended at one time.
const mostAtOnce = 8

// MaxBoxes bounds how many boxes there may be.
const MaxBoxes = 8192

// endWait bounds how long an end waits for the kernel.
const endWait = 10 * time.Second

// newMaker returns what makes boxes, in the way that the environment names, if it does.
func (k *Keeper) newMaker() (*cell.Maker, error) {
	m, err := cell.NewMaker(k.cfg.StateDir, k.groups)
	if err != nil {
		return nil, err
	}
	for _, e := range k.cfg.Environ {
		if forced, ok := strings.CutPrefix(e, box.WayVariable+"="); ok {
			if err := m.Force(forced); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// findCells takes over the boxes of the previous keeper. It runs before any process is
// restored, because processes in a box have their groups there.
func (k *Keeper) findCells() {
	k.cells = cells{all: map[box.ID]*inhabited{}, of: map[uint32]*inhabited{}, room: make(chan struct{}, mostAtOnce),
		resetOOM: k.stats.resetOOM}
	k.cells.some.L = &k.cells.mu
	k.cells.board = func() ([]byte, int) { return k.board.Memory(), k.board.FD() }
	if err := k.scripts.CanEnter(); err != nil {
		k.cells.why = fmt.Errorf("%w; %s: %w", err, box.InContainer, process.ErrUnsupported)
	} else {
		k.cells.maker, k.cells.why = k.newMaker()
	}
	live, over := cell.Find(k.cfg.StateDir, k.groups, k.logf)
	adopt := func(c *cell.Cell) *inhabited {
		b := k.cells.entry(c.Spec.ID)
		b.cell, b.frozen = c, c.Nest.Frozen()
		b.first.Store(int32(c.PID))
		if b.id != "" {
			k.cells.all[b.id] = b
		}
		for _, slot := range c.Nest.Adopt() {
			k.groups.Place(slot, c.Nest)
			k.cells.of[slot] = b
		}
		return b
	}
	for _, c := range live {
		adopt(c)
	}
	for _, c := range over {
		b := adopt(c)
		b.ending.Store(true)
		b.mu.Lock()
		k.unsettled = append(k.unsettled, func() {
			defer b.mu.Unlock()
			if werr := k.endHeld(b); werr != nil {
				k.logf("%s: what a keeper before left of it stays: %s", b.name(), werr.What)
			}
		})
	}
}

// endFormerCells ends the boxes of a daemon that is gone with all that it held.
func (k *Keeper) endFormerCells() {
	for _, b := range k.cells.list() {
		k.logf("sandbox %s: its daemon is gone, so it ends", b.id)
		b.ending.Store(true)
		k.unsettled = append(k.unsettled, func() { k.endCell(b.id) })
	}
}

// makeCell makes a box, or finds it.
func (k *Keeper) makeCell(s *box.Spec) (*wire.CellInfo, *wire.Error) {
	if err := s.Validate(); err != nil {
		return nil, cellError(err)
	}
	if k.cells.maker == nil {
		return nil, cellError(k.cells.why)
	}
	b, werr := k.holdCell(s.ID)
	if werr != nil {
		return nil, werr
	}
	defer k.letGoCell(b)
	return k.makeHeld(b, s)
}

// holdCell returns the entry of a box, with its mu held for writing, until letGoCell.
func (k *Keeper) holdCell(id box.ID) (*inhabited, *wire.Error) {
	for {
		if k.still.Load() != nil {
			return nil, &wire.Error{Code: wire.CodeBusy}
		}
		if k.stopping.Load() {
			return nil, &wire.Error{Code: wire.CodeLimit, What: "the daemon is shutting down"}
		}
		b, werr := k.cells.claim(id)
		if werr != nil {
			return nil, werr
		}
		b.mu.Lock()
		if k.cells.get(id) == b {
			return b, nil
		}
		b.mu.Unlock() // ended meanwhile
	}
}

func (k *Keeper) letGoCell(b *inhabited) {
	k.cells.forget(b)
	b.mu.Unlock()
}

// makeHeld is makeCell with b.mu held for writing.
func (k *Keeper) makeHeld(b *inhabited, s *box.Spec) (*wire.CellInfo, *wire.Error) {
	if b.cell != nil && (b.ending.Load() || !b.cell.Alive()) { // an end that came half its way, or from outside
		if werr := k.endHeld(b); werr != nil {
			return nil, werr
		}
	}
	if b.cell != nil {
		if !b.cell.Spec.Equal(s) {
			return nil, &wire.Error{Code: wire.CodeBoxExists}
		}
		return &wire.CellInfo{Info: b.cell.Info()}, nil
	}
	if err := k.cells.harden(s); err != nil {
		return nil, cellError(err)
	}
	k.cells.room <- struct{}{}
	defer func() { <-k.cells.room }()
	defer k.births.making()()
	c, err := k.cells.maker.Make(s)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		k.shedFiles()
		c, err = k.cells.maker.Make(s)
	}
	if err != nil {
		return nil, cellError(err)
	}
	b.cell, b.frozen = c, false
	b.first.Store(int32(c.PID))
	b.ending.Store(false)
	failpoint.Hit(failpoint.CellUnanswered)
	return &wire.CellInfo{Info: c.Info()}, nil
}

// inhabit returns a box that lives, with its mu held for reading.
func (k *Keeper) inhabit(id box.ID) (*inhabited, *wire.Error) {
	b := k.cells.get(id)
	if b == nil {
		return nil, &wire.Error{Code: wire.CodeBoxNotFound}
	}
	b.mu.RLock()
	switch {
	case b.cell == nil && !b.ending.Load():
		b.mu.RUnlock()
		return nil, &wire.Error{Code: wire.CodeBoxNotFound}
	case b.cell == nil, b.ending.Load(), !b.cell.Alive():
		b.mu.RUnlock()
		return nil, &wire.Error{Code: wire.CodeBoxEnded}
	}
	return b, nil
}

// networkCell gives a box its own network.
func (k *Keeper) networkCell(id box.ID) (*wire.CellInfo, *wire.Error) {
	b, werr := k.inhabit(id)
	if werr != nil {
		return nil, werr
	}
	defer b.mu.RUnlock()
	if b.cell.Spec.Net != box.NetOwn {
		return nil, &wire.Error{Code: wire.CodeInvalid, What: "net is not the sandbox's own"}
	}
	if werr := b.network(); werr != nil {
		return nil, werr
	}
	return &wire.CellInfo{Info: b.info()}, nil
}

// network creates the network, so that no program runs in the empty one that all boxes
// begin with. b.mu is held for reading.
func (b *inhabited) network() *wire.Error {
	if b.frozen {
		return &wire.Error{Code: wire.CodeBoxFrozen}
	}
	b.net.Lock()
	defer b.net.Unlock()
	if err := b.cell.Furnish(); err != nil {
		return cellError(err)
	}
	return nil
}

// info of the box. b.mu is held for reading.
func (b *inhabited) info() box.Info {
	b.net.Lock()
	defer b.net.Unlock()
	return b.cell.Info()
}

// changeCell calls change with a box that lives and in which nothing starts meanwhile.
func (k *Keeper) changeCell(id box.ID, change func(b *inhabited) error) *wire.Error {
	b, werr := k.inhabit(id)
	if werr != nil {
		return werr
	}
	b.mu.RUnlock()
	b.mu.Lock() // waits for starts
	defer b.mu.Unlock()
	if b.cell == nil || b.ending.Load() {
		return &wire.Error{Code: wire.CodeBoxEnded}
	}
	if err := change(b); err != nil {
		return cellError(err)
	}
	return nil
}

// freezeCell freezes or thaws all programs.
func (k *Keeper) freezeCell(id box.ID, frozen bool) *wire.Error {
	return k.changeCell(id, func(b *inhabited) error {
		err := b.cell.Nest.Freeze(frozen, time.Now().Add(endWait))
		if err == nil {
			b.frozen = frozen
		}
		return err
	})
}

// limitCell changes the limits.
func (k *Keeper) limitCell(id box.ID, l box.Limits) *wire.Error {
	if err := l.Validate(); err != nil {
		return cellError(err)
	}
	return k.changeCell(id, func(b *inhabited) error {
		err := b.cell.Limit(l)
		if err == nil {
			b.zygote.End() // programs are in the groups that it is in
		}
		return err
	})
}

// usageOfCell is what all in the box have used.
func (k *Keeper) usageOfCell(id box.ID) (*wire.CellUsage, *wire.Error) {
	b, werr := k.inhabit(id)
	if werr != nil {
		return nil, werr
	}
	defer b.mu.RUnlock()
	u := b.cell.Nest.Usage()
	if b.zygote.PID() != 0 && u.Tasks > 0 {
		u.Tasks--
	}
	return &wire.CellUsage{Usage: u}, nil
}

// listCells lists the boxes whose pid 1 lives.
func (k *Keeper) listCells() wire.CellInfos {
	var out wire.CellInfos
	for _, b := range k.cells.list() {
		b.mu.RLock()
		if b.cell != nil && !b.ending.Load() && b.cell.Alive() {
			out = append(out, b.info())
		}
		b.mu.RUnlock()
	}
	return out
}

// endCell ends a box with all that is in it.
func (k *Keeper) endCell(id box.ID) *wire.Error {
	b := k.cells.get(id)
	if b == nil {
		return nil
	}
	b.ending.Store(true)
	if b.mu.TryRLock() { // a start that hangs ends by this
		k.killCell(b)
		b.mu.RUnlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return k.endHeld(b)
}

// killCell kills all in a box, and notes the cause. b.mu is held.
func (k *Keeper) killCell(b *inhabited) {
	if b.cell == nil {
		return
	}
	for p := range k.all {
		if p.box.Load() != b || !p.mu.TryLock() { // held: it is starting or just ending
			continue
		}
		if p.started && !p.exited && p.undecided() {
			p.intend(process.CauseKilled, unix.SIGKILL)
		}
		p.mu.Unlock()
	}
	if err := b.cell.Kill(); err != nil {
		k.logf("%s: %v", b.name(), err)
	}
}

// endHeld is endCell with b.mu held for writing.
func (k *Keeper) endHeld(b *inhabited) *wire.Error {
	if b.cell == nil {
		k.cells.forget(b)
		return nil
	}
	k.cells.room <- struct{}{}
	defer func() { <-k.cells.room }()
	k.killCell(b)
	b.zygote.End()
	defer k.sweepMeanwhile()()
	if err := b.cell.End(time.Now().Add(endWait)); err != nil {
		return cellError(err)
	}
	b.cell = nil
	b.first.Store(0)
	b.ending.Store(false)
	k.cells.forget(b)
	return nil
}

// endZygotes is for an exec in place, after which nobody would know of them. Nothing starts.
func (k *Keeper) endZygotes() {
	for _, b := range k.cells.list() {
		b.zygote.End()
	}
}

// endCells ends all boxes, at shutdown.
func (k *Keeper) endCells() {
	var wg sync.WaitGroup
	for _, b := range k.cells.list() {
		wg.Go(func() {
			if werr := k.endCell(b.id); werr != nil {
				k.logf("sandbox %s: %s", b.id, werr.What)
			}
		})
	}
	wg.Wait()
}

// canCells says what boxes can have here: it makes one.
func (k *Keeper) canCells() (*wire.CellCan, *wire.Error) {
	if k.cells.maker == nil {
		return &wire.CellCan{Can: box.Can{Missing: []box.Missing{{Reason: k.cells.why.Error()}}}}, nil
	}
	k.starting.Add(1) // its descriptors are free again soon
	defer k.starting.Add(-1)
	b, werr := k.holdCell(cell.ProbeID)
	if werr == nil {
		defer k.letGoCell(b)
		werr = k.endHeld(b) // a keeper before may have died while it tried
	}
	if werr != nil {
		return nil, werr
	}
	over := k.births.making()
	can := k.cells.maker.Can()
	over()
	if can.Mode == 0 {
		return &wire.CellCan{Can: can}, nil
	}
	_, err := k.cells.filter()
	can.Add(box.LayerSeccomp, err)
	_, err = k.cells.landlock()
	can.Add(box.LayerLandlock, err)
	return &wire.CellCan{Can: can}, nil
}

// fact is for the hello: a server starts nothing inside before it has read it.
func (cs *cells) fact() (ok, broken string) {
	if cs.maker == nil {
		return "", cs.why.Error()
	}
	return "made by the keeper", ""
}

// cellError is the wire's word for an error of boxes.
func cellError(err error) *wire.Error {
	e := &wire.Error{What: err.Error(), Errno: errno(err)}
	invalid, ok := errors.AsType[*process.InvalidError](err)
	switch {
	case ok:
		e.Code, e.What = wire.CodeInvalid, invalid.Error()
	case errors.Is(err, box.ErrEnded):
		e.Code, e.What = wire.CodeBoxEnded, ""
	case errors.Is(err, process.ErrUnsupported):
		e.Code = wire.CodeUnsupported
	case errors.Is(err, process.ErrLimit), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOSPC),
		errors.Is(err, unix.ENOMEM):
		e.Code = wire.CodeLimit
	}
	return e
}
