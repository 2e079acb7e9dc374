//go:build linux && !tend_previous

package keeper

// snapshotVersion is what this keeper writes.
const snapshotVersion = newestSnapshot
