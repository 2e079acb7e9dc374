//go:build linux

// Package cgroup gives each process of the keeper its own cgroup v2. With the group the
// keeper finds the whole tree of a process, kills it, learns when it is empty, and sets
// the limits of memory, processes and CPU.
//
// # The directories
//
// Find creates one directory for the keeper below the cgroup that it runs in, or below
// the mount point if that group is not writable. If the parent of the keeper's own
// group was delegated (user.delegate, by systemd), the directory is created beside the
// keeper's group: v2 controllers can only be enabled there, because the parent contains
// no process. Each slot of the keeper has a directory pN in it. Finding, killing and
// watching a tree needs no controller, so the "unified" tree beside v1 controllers is
// enough. Each limit needs its controller, of either version: see Tree.Limit.
//
// # One directory, many processes
//
// Successive processes reuse a slot's directory, because creating and removing a
// directory takes a tenth of the time of a start. There are two exceptions:
//
//   - A killed group is not reused. Recent kernels (seen on 6.18) also kill every
//     process that is cloned into a group that was killed before. Its directory is
//     removed, and created again at the next Open. A keeper that takes over does not
//     know which groups were killed: see Distrust.
//   - Limits are lifted before the next process uses the group (Limit).
//
// # Limits by cgroup v1
//
// Each v1 controller has its own hierarchy. A process with a v1 limit has a directory
// there, pN.GENERATION below the directory of the tree, or of its container. The child joins
// before its program starts, by a file that was opened for it (Own). The directory
// belongs to one process, and is removed after it (Unlimit). A keeper that takes over
// finds the existing directories, and removes those without live processes (Sweep).
//
// # Containers
//
// The groups of processes in a sandbox are in the sandbox's own directory (Nest), so
// that the sandbox is limited, frozen and killed as a whole.
//
// If no tree is available (no mount, no permission, clone3 refused), the methods of the
// Tree return ErrNone; Why returns the reason.
//
// All methods may be called concurrently.
package cgroup
