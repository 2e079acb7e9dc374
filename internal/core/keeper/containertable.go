//go:build linux

package keeper

import (
	"fmt"

	"github.com/tend-run/tend/internal/core/contain"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/seccomp"
)

// The table of containers by id.

func (cs *containers) list() (all []*heldContainer) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, b := range cs.all {
		all = append(all, b)
	}
	return all
}

func (cs *containers) get(id container.ID) *heldContainer {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.all[id]
}

// entry returns a new one. Its zygote is made by starts, who hold mu.
func (cs *containers) entry(id container.ID) *heldContainer {
	b := &heldContainer{id: id}
	b.zygote = &spawn.Zygote{Group: func() (int, error) { return b.container.Nest.OpenFirst() }, Shared: cs.board, Filter: seccomp.Keyed,
		ResetOOM: cs.resetOOM}
	return b
}

// waitForOne waits until there is a container.
func (cs *containers) waitForOne() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for len(cs.all) == 0 {
		cs.some.Wait()
	}
}

// claim returns the entry of a container, and makes it at need.
func (cs *containers) claim(id container.ID) (*heldContainer, *wire.Error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.all[id]
	if b == nil {
		if len(cs.all) >= MaxContainers && id != contain.ProbeID {
			return nil, &wire.Error{Code: wire.CodeLimit, What: fmt.Sprintf("%d sandboxes are there; that is the limit of one keeper",
				MaxContainers)}
		}
		b = cs.entry(id)
		cs.all[id] = b
		cs.some.Broadcast()
	}
	return b, nil
}

// forget removes an entry that has no container. b.mu is held for writing.
func (cs *containers) forget(b *heldContainer) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all[b.id] == b && b.container == nil {
		delete(cs.all, b.id)
	}
}

// slot returns the container in which a slot's process was found by a keeper that takes over.
func (cs *containers) slot(slot uint32) *heldContainer {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.of[slot]
	delete(cs.of, slot)
	return b
}

// spaces are the containers that have a pid 1, by their namespaces of pids.
func (cs *containers) spaces() map[string]*heldContainer {
	spaces := map[string]*heldContainer{}
	for _, b := range cs.list() {
		if pid := int(b.first.Load()); pid != 0 {
			spaces[pidSpace(pid)] = b
		}
	}
	delete(spaces, "") // it has ended
	return spaces
}

// pids are those of all pid 1s.
func (cs *containers) pids() map[int]bool {
	pids := map[int]bool{}
	for _, b := range cs.list() {
		pids[int(b.first.Load())] = true
	}
	return pids
}
