//go:build linux && tend_previous

package keeper

// handoverVersion is what the keeper before this one wrote. Tests build a keeper
// with the tag tend_previous to upgrade from it.
const handoverVersion = 2

// boxIDs were UUIDs alone, and the hello said nothing of them.
const containerIDs = ""

// leaveOpen adds the descriptors that only that version leaves open.
func (k *Keeper) leaveOpen(h *handover) {
	for i := range h.Procs {
		h.Procs[i].Events = fdOut(k.procs[h.Procs[i].Slot].Load().treeFD)
	}
}
