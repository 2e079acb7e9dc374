// Package sockets keeps the listening sockets of a service open from one run to the next,
// so that no connection is refused during a restart: new connections wait in the
// backlog.
//
// A separate process, the holder, has the sockets and does nothing else. It is started
// by process.Manager, like a service, so it survives the death of any role. The process
// of the service also begins as this program: it requests the sockets from the holder,
// and then executes the command under the same pid. So LISTEN_PID is correct, and the
// environment is as sd_listen_fds(3) expects:
//
//	LISTEN_FDS=2  LISTEN_PID=4711  LISTEN_FDNAMES=http:admin    descriptors 3 and 4
//
// [HolderArgv] and [Argv] return the two command lines. [Called] recognizes them, and
// [Main] executes them. [Hold] tells the holder which sockets to hold.
//
// # The protocol
//
// The holder listens on a socket of the kind SOCK_SEQPACKET in the abstract namespace
// of the machine, which has no file and no mode. It answers only root and its own user.
// A client checks by the peer's pid (SO_PEERCRED) that it talks to the right holder. A
// connection has one request and one answer, each a JSON message:
//
//	{"hold": [{"name": "http", "address": "127.0.0.1:3000"}]}    {}
//	                                                             {"socket": "http", "errno": 98}
//	{"give": true}                                               {"names": ["http"]} and the descriptors
//
// A holder may be older than its client: fields may be added, and never change.
//
// A socket stays open as long as its address is the same. A program may leave it
// non-blocking, with a short backlog or shut down. The holder restores its initial
// state when it is told what to hold, which happens before each start. It replaces the
// file of a unix socket that nobody listens on, and removes its own files on SIGTERM.
// It also ends when its output has no reader any more, because then all of tend was
// killed.
package sockets
