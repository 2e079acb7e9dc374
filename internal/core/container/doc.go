// Package container defines the interface between the keeper and its clients for the kernel's
// part of a sandbox: a first process (pid 1), namespaces, a root filesystem and control
// groups with limits. The driver decides who may have a sandbox, its name, the content
// of its layers and where its network leads; the keeper knows none of this.
//
// # A container
//
// An [Engine] creates a container from a [Spec], which is self-contained: the same [Spec]
// again gives the same container. process.Manager starts programs inside; a container by itself
// runs only its pid 1. A container survives the death of the keeper and the server. It ends
// by [Engine.End], by a restart of the machine, or when its pid 1 is killed from
// outside. Its files stay, and a Make with the same [Spec] gives them a new container.
//
// # What is inside
//
//   - Own namespaces for processes, mounts, host name, IPC, cgroups, users and
//     network.
//   - The root is an overlay. On top is the container's own directory, which takes all
//     writes, including /tmp; below are the layers. With [BaseHost] the lowest has
//     directories and settings made afresh, and of this machine there are [Programs],
//     [Packages], Show of the Spec, and copies of [Settings].
//   - /proc of the container's own, without what would change the machine; a /dev with
//     the usual few devices; an empty /run and /dev/shm in memory; an empty /sys.
//   - Ids: 0 to 65535 inside are UIDBase and up outside, which with LayerIDs may differ from
//     container to container. Files on the disk have the ids that they have inside.
package container
