// Package shadow runs a program over the files of a container (package container) without changing
// them: its writes go to separate memory, or before Linux 6.6 to a file of its own.
//
// A shadow is a separate container, created by the process that needs it ([Make]) and not by
// the keeper. Its layers are everything that the other container consists of: the directory
// with the container's writes, then its layers, then the same base. So it shows the current
// files, may be as many overlays deep as the container itself (the kernel stacks two, which a
// container over the machine's root already uses), and has the same ids. On top is a
// filesystem in memory. Before Linux 6.6 that cannot take all that an overlay writes (a
// directory that replaces another one), and a disk in a file is there instead, as large.
// A shadow has its own processes, mounts and users, no network, and none of the container's
// programs; the container's shares are read-only in it.
//
// Writes of the container's programs meanwhile may or may not be visible, as with any
// directory below an overlay; a program in the shadow reads a file as it was when it
// opened it.
//
// [Shadow.Run] starts a program with all rights of a namespace's root, and without the
// system call filter: it is for a program of tend that prepares the view of a command
// and then gives up those rights. No other program can interfere with the command:
// nothing runs in a shadow before it, and nobody else can start anything in it.
//
// Nothing of a shadow is kept: its processes belong to the tree and the groups of the
// process that created it, and its memory is freed with the last of them. Whatever is
// killed, and even without groups, the kernel ends the shadow with the thread that
// created it. A disk's file is in the directory that the caller gave, and goes with it.
// Its requirements are those of containers.
package shadow
