// Package held keeps the listening sockets of a service open from one run of it to the
// next, so that a restart refuses nobody: what connects meanwhile waits in the backlog.
//
// A process of its own has the sockets: the holder. It does nothing but keep them. It is
// started over process.Manager, as a service is, and so outlives every death of a role.
// The process of the service begins as this program, too: it asks the holder for the
// sockets, and becomes the command in place, with the same pid. So LISTEN_PID is right,
// and the environment is what sd_listen_fds(3) says:
//
//	LISTEN_FDS=2  LISTEN_PID=4711  LISTEN_FDNAMES=http:admin    descriptors 3 and 4
//
// [HolderArgv] and [Argv] make the two command lines. [Called] recognises them, and [Main]
// does what they say. [Hold] tells the holder which sockets there are to be.
//
// # The protocol
//
// The holder listens on a socket of the kind SOCK_SEQPACKET in the abstract namespace of
// the machine, which has no file and no mode. It answers root and its own user alone. Who
// asks checks by the pid of the other end (SO_PEERCRED) that this is the holder that it
// means. A connection has one question and one answer, each a message of JSON:
//
//	{"hold": [{"name": "http", "address": "127.0.0.1:3000"}]}    {}
//	                                                             {"socket": "http", "errno": 98}
//	{"give": true}                                               {"names": ["http"]} and the descriptors
//
// A holder may be older than who asks it: fields are added, and never change.
//
// A socket stays open as long as its address is the same. A program may leave it
// non-blocking, with a short backlog or shut down. The holder makes it as at first when it
// is told what to hold, which is before each start. It replaces the file of a unix socket
// that nobody listens on, and removes its own files when it is asked to end by SIGTERM. It
// ends, too, when nobody can read its output any more: all of tend was killed then.
package held
