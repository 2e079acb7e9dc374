// Package script starts programs. Between the clone and the exec the child makes a
// list of system calls that was prepared before, by a few lines of assembly: it uses
// no stack and no Go code, so it may share the memory of its parent.
//
// Three things are different from syscall.ForkExec:
//
//   - The child shares the parent's table of descriptors at first, and copies only
//     its first few dozen (close_range(2), CLOSE_RANGE_UNSHARE). A fork copies all of
//     them, and an exec closes them one by one: with ten thousand descriptors that is a
//     millisecond.
//   - Only the thread that starts waits for the exec, and Go's runtime knows that it
//     does. In syscall.ForkExec such a thread keeps what Go calls a processor, and
//     garbage collection waits for the disk from which the program comes.
//   - Starts do not wait for each other: nothing of the parent changes for the time
//     of one, so limits that only the child shall have are calls of its own.
//
// It needs clone3(2) and close_range(2), Linux 5.9, and amd64 or arm64. [New] tries
// them.
//
// Inside a sandbox ([Enter]) there are two children: one enters the namespaces, and makes the
// second there as a child of the parent's. No thread of the parent ever changes
// namespaces or rights.
//
// # What the child shares
//
// Its descriptors, until its first call, so that call is the copy: a dup3(2) onto 0
// before would replace the parent's own. Memory, until the exec: once the child has
// another user the kernel lets nobody without privileges look into it (credentials(7);
// the memory is not dumpable any more).
package script
