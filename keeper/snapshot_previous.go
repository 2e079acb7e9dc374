//go:build linux && tend_previous

package keeper

// snapshotVersion is what the keeper before this one wrote. Tests build a
// keeper with the tag tend_previous to upgrade from it.
const snapshotVersion = newestSnapshot - 1
