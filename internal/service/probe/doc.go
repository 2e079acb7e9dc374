// Package probe checks the health of a service: by HTTP, by a TCP connection, by a
// command, or by a line of its output. Only an answer of the service itself counts. A
// port that answers proves nothing by itself: after a crash it may be held by an orphan
// of the previous run, or by another program. So after an answer the probe asks the
// kernel which process holds the socket that got the connection. If that process does
// not belong to the tree of the service, in whatever network namespace that is, the
// probe fails and names the holder.
//
// A probe ends within its timeout. If it took much longer, the prober itself was
// suspended, and the [Answer] says that it is in doubt.
package probe
