// Package observe answers what a process is doing, from the outside: it waits
// for conditions ([Wait]), lists the tree of a process ([Tree]), the TCP ports
// it listens on ([Listening]), tells who gets the connections to an address
// ([Answering]) and whether it waits for input ([Input]).
//
// A Wait takes part in nothing. It reads the output as any reader does, at its
// own pace, and looks at /proc; the process notices neither. It has no
// goroutine: everything happens in the caller's, and ends with the caller's
// context.
//
// # What the probes can know
//
// The tree is every process of the leader's session and all descendants that
// still hang together. A descendant that made a session of its own and whose
// parent died is not found this way; only a cgroup can tell of it, so the
// members of the leader's cgroup count too if it is not its parent's.
//
// Waiting for input is read from /proc/PID/task/TID/syscall, which needs the
// right to trace the process. A process counts when it is blocked
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
