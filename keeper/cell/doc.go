// Package cell makes boxes (package box) for the keeper, finds those of a keeper
// before, and ends them. It keeps no table and knows no programs inside: both are the
// keeper's.
//
// # How a box is made
//
// A child is made by a list of system calls (package script), and runs none of the
// keeper's code: it enters the box's user namespace, makes a child of its own with new
// namespaces, and that one builds the root from mounts that were prepared and handed to it
// by descriptors, enters it, and becomes pid 1. Its mounts begin as a copy of the stage (see
// stage.go), an almost empty mount namespace. Nothing is ever mounted in the machine's own.
//
//	mask    a filesystem in memory; empty where this machine has something to hide
//	base    overlay of the mask and the machine's root, read-only, once for all boxes
//	        with the same ids
//	box     overlay of Dir/up, the layers and the base, mounted in the user namespace
//
// All these mounts show other ids than the disk has (idmapped): what belongs to root on
// the disk belongs to root inside, and outside root inside is nobody.
//
// A keeper that is not root makes boxes with one id, its own, and from another stage: see
// rootless.go and pieces.go.
//
// # What is kept of a box
//
// Pid 1 holds all of its namespaces, the network too. A file for each box (see file)
// says how far it has come, so that the next keeper knows: a box is made, or it is gone.
// There is no descriptor that has to outlive the keeper.
//
// # What waits for the first program
//
// An idle box has no network of its own yet, and not the groups of v1 controllers with its
// limits (v2 has them in the one group of the box). Furnish makes both, before anything
// starts inside; pid 1 is in no v1 group.
//
// # What it needs
//
// Root, Linux 6.15 (overlays from detached mounts, and copies of these), user
// namespaces, and a filesystem that can show other ids. Everything else is refused, with
// the reason. Without root, Linux 6.6 (attributes of users on filesystems in memory) and
// user namespaces for ordinary users. Without cgroup v2 a box can be made; it cannot stand still.
package cell
