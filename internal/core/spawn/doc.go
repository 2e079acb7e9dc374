// Package spawn starts programs. Between the clone and the exec the child makes a
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
// It is for amd64 and arm64. Where clone3(2), Linux 5.7, or close_range(2), Linux 5.9, is
// missing or refused, starts take longer, and there are none inside sandboxes; see way.
//
// # Session and group
//
// A program has its own session and process group, and does not lead them: setsid(1) as the
// command then executes its program in place. If the command were the leader, setsid(1) would
// fork and end at once, with a status that is not the program's. So a stub is cloned first: it
// becomes the leader (setsid(2)), clones the program as a child of the parent's
// (CLONE_PARENT), and ends. The kernel does not use the stub's number again while the group or
// the session has members. Only the program of a terminal leads its session, as it must.
//
// Inside a sandbox ([Enter]) another child comes before: it enters the namespaces, and makes
// the stub there. No thread of the parent ever changes namespaces or rights.
//
// # What the child shares
//
// Its descriptors, until its first call, so that call is the copy: a dup3(2) onto 0
// before would replace the parent's own. Memory, until the exec: once the child has
// another user the kernel lets nobody without privileges look into it (credentials(7);
// the memory is not dumpable any more).
package spawn
