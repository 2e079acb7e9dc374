// Package distant serves the protocol of distant 0.20: proc_spawn and related requests,
// and the file requests that editor plugins need.
//
// There are two transports with the same semantics. [Face.ServeLines] speaks JSON, one
// message on each line, over anything that reads and writes: stdin and stdout, a unix
// socket, a TCP port. [Native] is what the distant command line and its editor plugins
// speak over TCP: framed MessagePack, encrypted, authenticated by a static key, resumed
// after a cut. docs/protocols/distant.md lists the supported requests and the
// differences from the original.
//
// # Two shapes of a line
//
//	{"type":"proc_spawn","cmd":"ls"}                        bare
//	{"id":"1","payload":{"type":"proc_spawn","cmd":"ls"}}   envelope
//
// Answers have the shape of their request. Bare answers come in the order of the
// requests, because nothing else identifies the request; envelopes come as soon as they
// are ready, and name their origin.
//
// # Whose processes
//
// A process is identified by a 32-bit number, which is derived from its [process.ID]
// and stored in its tag ("distant-7"), so that every connection, and the server after a
// restart, finds it again. It survives its connection.
//
// # Locks
//
// Client.mu is never held while a message is sent. The sending side has its own lock,
// which is taken last.
package distant
