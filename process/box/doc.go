// Package box is what the keeper and its clients say of the part of a sandbox that
// the kernel holds: a first process (pid 1), namespaces, a root filesystem and
// groups of limits. Who may have a sandbox, how it is called, what lies in its
// layers and where its network leads is the driver's; the keeper knows none of it.
//
// # A box
//
// An [Engine] makes a box by a [Spec], which is whole in itself: the same Spec
// again is the same box. Programs are started inside by process.Manager; a box
// alone runs nothing but its pid 1. A box lives on when the keeper or the server
// dies. It ends by [Engine.End], when the machine is started anew, or when its pid
// 1 is killed from outside; its files stay, and a Make with the same Spec gives
// them a new box.
//
// # What is inside
//
//   - Own namespaces for processes, mounts, host name, IPC, cgroups, users and
//     network.
//   - The root is an overlay. On top is the box's own directory, which takes all
//     writes, /tmp too; below are the layers; lowest is, with [BaseHost], the
//     root of this machine without what [Hidden] names.
//   - /proc of the box's own, without what would change the machine; a /dev with
//     the usual few devices; an empty /run and /dev/shm in memory; an empty /sys.
//   - Ids: 0 to 65535 inside are UIDBase and up outside. Files on the disk
//     have the ids that they have inside.
package box
