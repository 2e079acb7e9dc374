//go:build linux && !tend_previous

package keeper

// handoverVersion is what this keeper writes.
const handoverVersion = newestHandover

// boxIDs says in the hello that containers may have IDs of [container.NewID]'s form, too.
const containerIDs = "20 letters and digits, or UUIDs"

// leaveOpen adds the descriptors that only the version before left open.
func (k *Keeper) leaveOpen(*handover) {}
