//go:build linux && !tend_previous

package keeper

// handoverVersion is what this keeper writes.
const handoverVersion = newestHandover

// leaveOpen adds the descriptors that only the version before left open.
func (k *Keeper) leaveOpen(*handover) {}
