//go:build linux && !tend_previous

package keeper

// handoverVersion is what this keeper writes.
const handoverVersion = newestHandover

// boxIDs says in the hello that boxes may have IDs of [box.NewID]'s form, too.
const boxIDs = "20 letters and digits, or UUIDs"

// leaveOpen adds the descriptors that only the version before left open.
func (k *Keeper) leaveOpen(*handover) {}
