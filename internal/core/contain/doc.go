// Package container makes containers (package container) for the keeper, finds those of a keeper
// before, and ends them. It keeps no table and knows no programs inside: both are the
// keeper's.
//
// # How a container is made
//
// A child is made by a list of system calls (package spawn), and runs none of the
// keeper's code: it enters the container's user namespace, makes a child of its own with new
// namespaces, and that one builds the root from mounts, enters it, and becomes pid 1. Its mounts
// begin as a copy of the stage (see stage.go), an almost empty mount namespace with what containers
// share; what is the container's own it is handed by descriptors. Nothing is ever mounted in the
// machine's own mount namespace.
//
//	skeleton  a filesystem in memory with what each root has, and an /etc made afresh (see skeleton.go)
//	pieces    directories of the machine that containers see, read-only, in the stage (see pieces.go)
//	container       an overlay of Dir/up, the layers and the skeleton, and over it one for each piece, of Dir/up,
//	          the layers and the machine's; mounted in the user namespace
//
// The machine's files, layers and Dir show other ids than the disk has (idmapped): what belongs
// to root on the disk belongs to root inside, and outside root inside is nobody. A piece whose
// filesystem cannot do so, as an overlay, keeps the machine's owners, who are nobody inside; the
// skeleton then has its directories, as root's. The skeleton shows other ids, too, so that it serves containers
// with any ids; where the kernel shows none in memory (before Linux 6.3) it is for containers with the same. What
// else is in memory, such as /dev, is the container's own.
//
// Where parts of the machine's /proc are hidden, pid 1 mounts its own before it enters the user
// namespace, if the keeper is root; else it has that of the keeper, which the driver allows.
//
// Three things vary: whose the pieces' files are inside (piece.nobody), where the ids of what is
// written come from (idmapped, or the one id of an ordinary user), and who attaches the parts: the
// keeper by descriptors, or the child by paths (source). All else is one way, in write.go.
//
// A keeper that is not root makes containers with one id, its own, and from another stage: see
// rootless.go and pieces.go. One that is root and may not mount has such a stage with ids of nobody: see bypath.go.
//
// # What is kept of a container
//
// Pid 1 holds all of its namespaces, the network too. A file for each container (see file)
// says how far it has come, so that the next keeper knows: a container is made, or it is gone.
// There is no descriptor that has to outlive the keeper.
//
// # What waits for the first program
//
// An idle container has no network of its own yet, and not the groups of v1 controllers with its
// limits (v2 has them in the one group of the container). Furnish makes both, before anything
// starts inside; pid 1 is in no v1 group.
//
// # What it needs
//
// Root, Linux 5.19 (overlays over mounts that show other ids), user namespaces, and a
// filesystem that can show other ids. Everything else is refused, with the reason. Without root,
// Linux 5.11 (overlays in user namespaces) and user namespaces for ordinary users. Without cgroup
// v2 a container can be made; it cannot stand still. The tests run on 6.1, 6.12, 7.2 (test/kernel) and
// newer.
//
// So nothing is done here that only later kernels allow: no copy of a mount that is not
// attached, nor of a directory in one, nor an overlay of it (6.15); no layer of an overlay by
// descriptor (6.13); no attribute of users on a filesystem in memory (6.6). Other ids
// there (6.3) are tried, and without them container.LayerIDs is missing. Package kernelfault plays such a kernel for the tests.
package contain
