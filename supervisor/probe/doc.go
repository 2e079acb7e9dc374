// Package probe asks a service how it is: by HTTP, by a TCP connection, by a command, or
// by a line of its output. What answers must be the service. A port that answers proves
// nothing by itself: after a crash it may be held by an orphan of the run before, or by
// another program. So after an answer the probe asks the kernel who holds the socket
// that got the connection; unless the process belongs to the tree of the service, in
// whatever network namespace that is, the answer is a failure that names the holder.
//
// A probe ends within its timeout. If it took much longer than it was given, then it
// was the prober that stood still, and the [Answer] says that it is in doubt.
package probe
