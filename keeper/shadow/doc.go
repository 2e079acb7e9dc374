// Package shadow runs a program over the files of a box (package box) without changing
// them: what it writes is taken by memory of its own.
//
// A shadow is a box of its own, made by the process that wants it ([Make]) and not by the
// keeper. Its layers are all that the other box is made from: the directory that takes what
// is written there, then its layers, then the same base. So it shows the files as they are,
// may be as many overlays deep as the box itself (the kernel stacks two, which a box over
// the machine's root has used up), and has the same ids. On top is a filesystem in memory.
// It has processes, mounts and users of its own, no network, and none of the box's
// programs; what the box shares with the machine is read-only in it.
//
// What the box's programs write meanwhile is seen, or not, as of a directory below any
// overlay; a program in the shadow reads what was there when it opened it.
//
// [Shadow.Run] starts a program with all rights that root of a namespace has, and without the
// filter of system calls: it is for a program of tend that arranges what a command is to see
// and then gives those rights up. The command comes into no other's hands: nothing runs in
// a shadow before, and nobody else can start anything in it.
//
// Nothing of a shadow is kept: its processes are of the tree and the groups of the process
// that made it, and its memory goes with the last of them. Whoever is killed, and where there
// are no groups, the kernel ends it with the thread that made it. It needs what boxes need.
package shadow
