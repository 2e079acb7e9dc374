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

	"github.com/tend-run/tend/internal/core/contain"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/seccomp"
	"github.com/tend-run/tend/process"
)

// containers are the containers, by ID. Locks: heldContainer.mu is taken before a proc.mu, and containers.mu
// is taken last and for a moment.
type containers struct {
	maker *contain.Maker
	why   error         // then there is no maker
	room  chan struct{} // one value for each that is just being made or ended

	board    func() (memory []byte, fd int) // in which starts are written down
	resetOOM bool                           // programs have another OOM score than the keeper

	mu   sync.Mutex
	all  map[container.ID]*heldContainer // guarded by mu
	some sync.Cond                       // there is a container; its lock is mu
	of   map[uint32]*heldContainer       // of slots, until their processes are restored; guarded by mu

	denied  seccomp.Filter // nil: not made yet; guarded by mu
	ruleset int            // of Landlock; 0: not made yet; guarded by mu
}

// heldContainer is a container with its programs. Starting a program holds mu for reading;
// creating, freezing or ending the container holds it for writing.
type heldContainer struct {
	id     container.ID
	ending atomic.Bool  // nothing starts any more
	first  atomic.Int32 // pid of pid 1; 0: there is none

	mu        sync.RWMutex
	container *contain.Container // nil: not made, or ended; guarded by mu
	frozen    bool               // guarded by mu
	net       sync.Mutex         // one asks for the network at a time; after mu
	zygote    *spawn.Zygote      // of container
}

// name is for the log.
func (b *heldContainer) name() string {
	if b.id == "" {
		return "a sandbox without a file"
	}
	return "sandbox " + string(b.id)
}

// mostAtOnce bounds how many containers are made or ended at one time.
const mostAtOnce = 8

// MaxBoxes bounds how many containers there may be.
const MaxContainers = 8192

// endWait bounds how long an end waits for the kernel.
const endWait = 10 * time.Second

// newMaker returns what makes containers, in the way that the environment names, if it does.
func (k *Keeper) newMaker() (*contain.Maker, error) {
	m, err := contain.NewMaker(k.cfg.StateDir, k.groups)
	if err != nil {
		return nil, err
	}
	for _, e := range k.cfg.Environ {
		if forced, ok := strings.CutPrefix(e, container.WayVariable+"="); ok {
			if err := m.Force(forced); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// findContainers takes over the containers of the previous keeper. It runs before any process is
// restored, because processes in a container have their groups there.
func (k *Keeper) findContainers() {
	k.containers = containers{all: map[container.ID]*heldContainer{}, of: map[uint32]*heldContainer{}, room: make(chan struct{}, mostAtOnce),
		resetOOM: k.stats.resetOOM}
	k.containers.some.L = &k.containers.mu
	k.containers.board = func() ([]byte, int) { return k.board.Memory(), k.board.FD() }
	if err := k.scripts.CanEnter(); err != nil {
		k.containers.why = fmt.Errorf("%w; %s: %w", err, contain.Options(), process.ErrUnsupported)
	} else {
		k.containers.maker, k.containers.why = k.newMaker()
	}
	live, over := contain.Find(k.cfg.StateDir, k.groups, k.logf)
	adopt := func(c *contain.Container) *heldContainer {
		b := k.containers.entry(c.Spec.ID)
		b.container, b.frozen = c, c.Nest.Frozen()
		b.first.Store(int32(c.PID))
		if b.id != "" {
			k.containers.all[b.id] = b
		}
		for _, slot := range c.Nest.Adopt() {
			k.groups.Place(slot, c.Nest)
			k.containers.of[slot] = b
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

// endFormerCells ends the containers of a daemon that is gone with all that it held.
func (k *Keeper) endFormerContainers() {
	for _, b := range k.containers.list() {
		k.logf("sandbox %s: its daemon is gone, so it ends", b.id)
		b.ending.Store(true)
		k.unsettled = append(k.unsettled, func() { k.endContainer(b.id) })
	}
}

// makeCell makes a container, or finds it.
func (k *Keeper) makeContainer(s *container.Spec) (*wire.ContainerInfo, *wire.Error) {
	if err := s.Validate(); err != nil {
		return nil, containerError(err)
	}
	if k.containers.maker == nil {
		return nil, containerError(k.containers.why)
	}
	b, werr := k.holdContainer(s.ID)
	if werr != nil {
		return nil, werr
	}
	defer k.letGoContainer(b)
	return k.makeHeld(b, s)
}

// holdCell returns the entry of a container, with its mu held for writing, until letGoCell.
func (k *Keeper) holdContainer(id container.ID) (*heldContainer, *wire.Error) {
	for {
		if k.still.Load() != nil {
			return nil, &wire.Error{Code: wire.CodeBusy}
		}
		if k.stopping.Load() {
			return nil, &wire.Error{Code: wire.CodeLimit, What: "the daemon is shutting down"}
		}
		b, werr := k.containers.claim(id)
		if werr != nil {
			return nil, werr
		}
		b.mu.Lock()
		if k.containers.get(id) == b {
			return b, nil
		}
		b.mu.Unlock() // ended meanwhile
	}
}

func (k *Keeper) letGoContainer(b *heldContainer) {
	k.containers.forget(b)
	b.mu.Unlock()
}

// makeHeld is makeCell with b.mu held for writing.
func (k *Keeper) makeHeld(b *heldContainer, s *container.Spec) (*wire.ContainerInfo, *wire.Error) {
	if b.container != nil && (b.ending.Load() || !b.container.Alive()) { // an end that came half its way, or from outside
		if werr := k.endHeld(b); werr != nil {
			return nil, werr
		}
	}
	if b.container != nil {
		if !b.container.Spec.Equal(s) {
			return nil, &wire.Error{Code: wire.CodeContainerExists}
		}
		return &wire.ContainerInfo{Info: b.container.Info()}, nil
	}
	if err := k.containers.harden(s); err != nil {
		return nil, containerError(err)
	}
	k.containers.room <- struct{}{}
	defer func() { <-k.containers.room }()
	defer k.births.making()()
	c, err := k.containers.maker.Make(s)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		k.shedFiles()
		c, err = k.containers.maker.Make(s)
	}
	if err != nil {
		return nil, containerError(err)
	}
	b.container, b.frozen = c, false
	b.first.Store(int32(c.PID))
	b.ending.Store(false)
	failpoint.Hit(failpoint.ContainerUnanswered)
	return &wire.ContainerInfo{Info: c.Info()}, nil
}

// living returns a container that lives, with its mu held for reading.
func (k *Keeper) living(id container.ID) (*heldContainer, *wire.Error) {
	b := k.containers.get(id)
	if b == nil {
		return nil, &wire.Error{Code: wire.CodeContainerNotFound}
	}
	b.mu.RLock()
	switch {
	case b.container == nil && !b.ending.Load():
		b.mu.RUnlock()
		return nil, &wire.Error{Code: wire.CodeContainerNotFound}
	case b.container == nil, b.ending.Load(), !b.container.Alive():
		b.mu.RUnlock()
		return nil, &wire.Error{Code: wire.CodeContainerEnded}
	}
	return b, nil
}

// networkCell gives a container its own network.
func (k *Keeper) networkContainer(id container.ID) (*wire.ContainerInfo, *wire.Error) {
	b, werr := k.living(id)
	if werr != nil {
		return nil, werr
	}
	defer b.mu.RUnlock()
	if b.container.Spec.Net != container.NetOwn {
		return nil, &wire.Error{Code: wire.CodeInvalid, What: "net is not the sandbox's own"}
	}
	if werr := b.network(); werr != nil {
		return nil, werr
	}
	return &wire.ContainerInfo{Info: b.info()}, nil
}

// network creates the network, so that no program runs in the empty one that all containers
// begin with. b.mu is held for reading.
func (b *heldContainer) network() *wire.Error {
	if b.frozen {
		return &wire.Error{Code: wire.CodeContainerFrozen}
	}
	b.net.Lock()
	defer b.net.Unlock()
	if err := b.container.Furnish(); err != nil {
		return containerError(err)
	}
	return nil
}

// info of the container. b.mu is held for reading.
func (b *heldContainer) info() container.Info {
	b.net.Lock()
	defer b.net.Unlock()
	return b.container.Info()
}

// changeCell calls change with a container that lives and in which nothing starts meanwhile.
func (k *Keeper) changeContainer(id container.ID, change func(b *heldContainer) error) *wire.Error {
	b, werr := k.living(id)
	if werr != nil {
		return werr
	}
	b.mu.RUnlock()
	b.mu.Lock() // waits for starts
	defer b.mu.Unlock()
	if b.container == nil || b.ending.Load() {
		return &wire.Error{Code: wire.CodeContainerEnded}
	}
	if err := change(b); err != nil {
		return containerError(err)
	}
	return nil
}

// freezeCell freezes or thaws all programs.
func (k *Keeper) freezeContainer(id container.ID, frozen bool) *wire.Error {
	return k.changeContainer(id, func(b *heldContainer) error {
		err := b.container.Nest.Freeze(frozen, time.Now().Add(endWait))
		if err == nil {
			b.frozen = frozen
		}
		return err
	})
}

// limitCell changes the limits.
func (k *Keeper) limitContainer(id container.ID, l container.Limits) *wire.Error {
	if err := l.Validate(); err != nil {
		return containerError(err)
	}
	return k.changeContainer(id, func(b *heldContainer) error {
		err := b.container.Limit(l)
		if err == nil {
			b.zygote.End() // programs are in the groups that it is in
		}
		return err
	})
}

// usageOfCell is what all in the container have used.
func (k *Keeper) usageOfContainer(id container.ID) (*wire.ContainerUsage, *wire.Error) {
	b, werr := k.living(id)
	if werr != nil {
		return nil, werr
	}
	defer b.mu.RUnlock()
	u := b.container.Nest.Usage()
	if b.zygote.PID() != 0 && u.Tasks > 0 {
		u.Tasks--
	}
	return &wire.ContainerUsage{Usage: u}, nil
}

// listCells lists the containers whose pid 1 lives.
func (k *Keeper) listContainers() wire.ContainerInfos {
	var out wire.ContainerInfos
	for _, b := range k.containers.list() {
		b.mu.RLock()
		if b.container != nil && !b.ending.Load() && b.container.Alive() {
			out = append(out, b.info())
		}
		b.mu.RUnlock()
	}
	return out
}

// endCell ends a container with all that is in it.
func (k *Keeper) endContainer(id container.ID) *wire.Error {
	b := k.containers.get(id)
	if b == nil {
		return nil
	}
	b.ending.Store(true)
	if b.mu.TryRLock() { // a start that hangs ends by this
		k.killContainer(b)
		b.mu.RUnlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return k.endHeld(b)
}

// killCell kills all in a container, and notes the cause. b.mu is held.
func (k *Keeper) killContainer(b *heldContainer) {
	if b.container == nil {
		return
	}
	for p := range k.all {
		if p.container.Load() != b || !p.mu.TryLock() { // held: it is starting or just ending
			continue
		}
		if p.started && !p.exited && p.undecided() {
			p.intend(process.CauseKilled, unix.SIGKILL)
		}
		p.mu.Unlock()
	}
	if err := b.container.Kill(); err != nil {
		k.logf("%s: %v", b.name(), err)
	}
}

// endHeld is endCell with b.mu held for writing.
func (k *Keeper) endHeld(b *heldContainer) *wire.Error {
	if b.container == nil {
		k.containers.forget(b)
		return nil
	}
	k.containers.room <- struct{}{}
	defer func() { <-k.containers.room }()
	k.killContainer(b)
	b.zygote.End()
	defer k.sweepMeanwhile()()
	if err := b.container.End(time.Now().Add(endWait)); err != nil {
		return containerError(err)
	}
	b.container = nil
	b.first.Store(0)
	b.ending.Store(false)
	k.containers.forget(b)
	return nil
}

// endZygotes is for an exec in place, after which nobody would know of them. Nothing starts.
func (k *Keeper) endZygotes() {
	for _, b := range k.containers.list() {
		b.zygote.End()
	}
}

// endCells ends all containers, at shutdown.
func (k *Keeper) endContainers() {
	var wg sync.WaitGroup
	for _, b := range k.containers.list() {
		wg.Go(func() {
			if werr := k.endContainer(b.id); werr != nil {
				k.logf("sandbox %s: %s", b.id, werr.What)
			}
		})
	}
	wg.Wait()
}

// canCells says what containers can have here: it makes one.
func (k *Keeper) canContainers() (*wire.ContainerCan, *wire.Error) {
	if k.containers.maker == nil {
		return &wire.ContainerCan{Can: container.Can{Missing: []container.Missing{{Reason: k.containers.why.Error()}}}}, nil
	}
	k.starting.Add(1) // its descriptors are free again soon
	defer k.starting.Add(-1)
	b, werr := k.holdContainer(contain.ProbeID)
	if werr == nil {
		defer k.letGoContainer(b)
		werr = k.endHeld(b) // a keeper before may have died while it tried
	}
	if werr != nil {
		return nil, werr
	}
	over := k.births.making()
	can := k.containers.maker.Can()
	over()
	if can.Mode == 0 {
		return &wire.ContainerCan{Can: can}, nil
	}
	_, err := k.containers.filter()
	can.Add(container.LayerSeccomp, err)
	_, err = k.containers.landlock()
	can.Add(container.LayerLandlock, err)
	return &wire.ContainerCan{Can: can}, nil
}

// fact is for the hello: a server starts nothing inside before it has read it.
func (cs *containers) fact() (ok, broken string) {
	if cs.maker == nil {
		return "", cs.why.Error()
	}
	return "made by the keeper", ""
}

// cellError is the wire's word for an error of containers.
func containerError(err error) *wire.Error {
	e := &wire.Error{What: err.Error(), Errno: errno(err)}
	invalid, ok := errors.AsType[*process.InvalidError](err)
	switch {
	case ok:
		e.Code, e.What = wire.CodeInvalid, invalid.Error()
	case errors.Is(err, container.ErrEnded):
		e.Code, e.What = wire.CodeContainerEnded, ""
	case errors.Is(err, process.ErrUnsupported):
		e.Code = wire.CodeUnsupported
	case errors.Is(err, process.ErrLimit), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOSPC),
		errors.Is(err, unix.ENOMEM):
		e.Code = wire.CodeLimit
	}
	return e
}
