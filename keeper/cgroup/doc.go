//go:build linux

// Package cgroup gives each process of the keeper a cgroup v2 of its own. The
// group finds the whole tree of a process, ends it, says when it is empty, and
// carries the limits of memory, processes and CPU.
//
// # The directories
//
// Find makes one directory for the keeper below the cgroup that it runs in, or
// below the mount point where that cannot be written. It is beside the keeper's own
// group where the one around both was delegated (user.delegate, by systemd): only there
// can controllers of v2 be switched on, as no process is in the group around them. Each slot of the keeper
// has a directory pN in it. No controller is needed to find, end and watch a
// tree, so the "unified" tree beside v1 controllers is enough. Limits need the
// controller of each, in whatever version it is: see Tree.Limit.
//
// # One directory, many processes
//
// A slot's directory is used by one process after the other: making and removing
// a directory takes a tenth of the time of a start. There are two exceptions:
//
//   - A group that was killed is not used again. Recent kernels (seen on 6.18)
//     also kill whatever is cloned into a group that was killed before. Its
//     directory is removed, and made anew at the next Open. A keeper that takes
//     over does not know which were killed: see Distrust.
//   - Limits are lifted before the next process uses the group (Limit).
//
// # Limits by cgroup v1
//
// A controller that is one of v1 has a hierarchy of its own. A process with a limit of it
// has a directory there, pN.GENERATION behind the name of the tree, or in that of its box.
// The child joins before its program begins, by a file that was opened for it (Own). The
// directory is of one process alone, and is removed after it (Unlimit). A keeper that takes
// over finds those that there are, and removes those of which nothing lives (Sweep).
//
// # Boxes
//
// The groups of processes in a sandbox lie in a directory of the sandbox's own (Nest), so
// that it has limits, stands still and ends as a whole.
//
// A tree that cannot be had (no mount, no permission, clone3 refused) is a Tree
// whose methods return ErrNone; Why says the reason.
//
// All methods may be called concurrently.
package cgroup
