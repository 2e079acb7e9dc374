//go:build linux

package keeper

import (
	"fmt"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/cell"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/seccomp"
)

// The table of boxes by id.

func (cs *cells) list() (all []*inhabited) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, b := range cs.all {
		all = append(all, b)
	}
	return all
}

func (cs *cells) get(id box.ID) *inhabited {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.all[id]
}

// entry returns a new one. Its zygote is made by starts, who hold mu.
func (cs *cells) entry(id box.ID) *inhabited {
	b := &inhabited{id: id}
	b.zygote = &spawn.Zygote{Group: func() (int, error) { return b.cell.Nest.OpenFirst() }, Shared: cs.board, Filter: seccomp.Keyed,
		ResetOOM: cs.resetOOM}
	return b
}

// waitForOne waits until there is a box.
func (cs *cells) waitForOne() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for len(cs.all) == 0 {
		cs.some.Wait()
	}
}

// claim returns the entry of a box, and makes it at need.
func (cs *cells) claim(id box.ID) (*inhabited, *wire.Error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.all[id]
	if b == nil {
		if len(cs.all) >= MaxBoxes && id != cell.ProbeID {
			return nil, &wire.Error{Code: wire.CodeLimit, What: fmt.Sprintf("%d sandboxes are there; that is the limit of one keeper", MaxBoxes)}
		}
		b = cs.entry(id)
		cs.all[id] = b
		cs.some.Broadcast()
	}
	return b, nil
}

// forget removes an entry that has no box. b.mu is held for writing.
func (cs *cells) forget(b *inhabited) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all[b.id] == b && b.cell == nil {
		delete(cs.all, b.id)
	}
}

// slot returns the box in which a slot's process was found by a keeper that takes over.
func (cs *cells) slot(slot uint32) *inhabited {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.of[slot]
	delete(cs.of, slot)
	return b
}

// spaces are the boxes that have a pid 1, by their namespaces of pids.
func (cs *cells) spaces() map[string]*inhabited {
	spaces := map[string]*inhabited{}
	for _, b := range cs.list() {
		if pid := int(b.first.Load()); pid != 0 {
			spaces[pidSpace(pid)] = b
		}
	}
	delete(spaces, "") // it has ended
	return spaces
}

// pids are those of all pid 1s.
func (cs *cells) pids() map[int]bool {
	pids := map[int]bool{}
	for _, b := range cs.list() {
		pids[int(b.first.Load())] = true
	}
	return pids
}
