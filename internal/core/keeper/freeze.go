//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/lib/nap"
)

// For an upgrade everything comes to a stand: workers, processes, starts.

// freezeTime bounds how long everything may take to come to a stand.
const freezeTime = 2 * time.Second

// stillness is an upgrade under way: where the workers wait.
type stillness struct {
	begun   int64         // CLOCK_BOOTTIME, ns
	arrived chan struct{} // capacity: one for each worker
	over    chan struct{} // closed when they may go on
	locked  []*proc       // whose locks the upgrade holds
	whole   bool          // it holds the keeper's and the vaults' locks too
}

// standStill keeps a worker while an upgrade is under way.
func (k *Keeper) standStill() {
	if st := k.still.Load(); st != nil {
		st.arrived <- struct{}{}
		<-st.over
	}
}

// freeze stops all work: no worker runs, no process is touched, no start begins. thaw
// releases the locks that it takes.
func (k *Keeper) freeze(st *stillness) error {
	event, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(event)
	if err := unix.EpollCtl(k.ep, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: onFreeze}); err != nil {
		return err
	}
	g := suspendaware.New(freezeTime)
	look := time.NewTicker(25 * time.Millisecond)
	defer look.Stop()
	for arrived := 0; arrived < k.crew; {
		select {
		case <-st.arrived:
			arrived++
		case <-look.C:
			if g.Over() {
				return errors.New("a worker is held up by the filesystem")
			}
		}
	}
	g = suspendaware.New(freezeTime)
	for {
		for _, p := range k.unlocked(st) {
			for !p.tryStill() {
				if g.Over() {
					return fmt.Errorf("process %s is held by the filesystem or by a start that does not end", p.id)
				}
				nap.For(50 * time.Microsecond)
			}
			st.locked = append(st.locked, p)
		}
		k.mu.Lock() // no slot gets an owner now
		if len(k.unlocked(st)) == 0 {
			for _, v := range k.vaults {
				v.Lock()
			}
			st.whole = true
			return nil
		}
		k.mu.Unlock()
	}
}

// unlocked are the processes whose locks it does not hold yet.
func (k *Keeper) unlocked(st *stillness) (out []*proc) {
	have := make(map[*proc]bool, len(st.locked))
	for _, p := range st.locked {
		have[p] = true
	}
	for p := range k.all {
		if !have[p] {
			out = append(out, p)
		}
	}
	return out
}

// tryStill takes the lock, unless the exit is just being forced to the disk, or
// bytes are in our own memory: a handover has no place for either.
func (p *proc) tryStill() bool {
	if !p.mu.TryLock() {
		return false
	}
	if p.pendingExit != nil || len(p.out[0].rest) > 0 || len(p.out[1].rest) > 0 {
		p.mu.Unlock()
		return false
	}
	return true
}

// thaw lets everything go on.
func (k *Keeper) thaw(st *stillness) {
	if st.whole {
		for _, v := range k.vaults {
			v.Unlock()
		}
		k.mu.Unlock()
	}
	for _, p := range st.locked {
		p.mu.Unlock()
	}
	k.still.Store(nil)
	close(st.over)
}
