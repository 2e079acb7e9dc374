// Package observe finds out from the outside what a process is doing: it waits for
// conditions ([Wait]), lists the tree of a process ([Tree]) and the TCP ports that it
// listens on ([Listening]), finds the process that gets the connections to an address
// ([Answering]), and whether a process waits for input ([Input]).
//
// A Wait is passive. It reads the output like any reader, at its own pace, and reads
// /proc; neither affects the process. It has no goroutine: everything happens in the
// caller's goroutine, and ends with the caller's context.
//
// # What the probes can know
//
// The tree is every process of the leader's session and all descendants whose chain of
// parents is intact. This misses a descendant that created its own session and whose
// parent died; only a cgroup can find it. So the members of the leader's cgroup count
// too, if that is not also its parent's cgroup.
//
// Whether a process waits for input is read from /proc/PID/task/TID/syscall, which
// needs the right to trace the process. A process counts when it is blocked
//
//   - in read(2) on the leader's stdin pipe or terminal: certain;
//   - in the same with a terminal in canonical mode that does not echo, as
//     getpass(3), sudo and ssh leave it: password. A terminal in raw mode does
//     not echo either, but there a line editor does, so it is certain only;
//   - in poll, select or epoll with that pipe or terminal in the set: likely,
//     as line editors do, and development servers that take single keys.
//
// The ports come from sock_diag (netlink), or from /proc/PID/net/tcp and tcp6 for a
// network namespace in the tree that may not be entered, matched by socket inode
// with the descriptors of the tree.
//
// Probes work on Linux. Elsewhere they report [process.ErrUnsupported]; the
// conditions on output and exit work everywhere.
package observe
