// Package server is what clients talk to: listeners, authentication, limits,
// metrics and probes around a driver and a list of parts (package part). It knows
// no part by its name. It owns no process and no output; it can be killed and
// started again at any moment.
//
// # Who may call
//
// A unix socket admits the user that runs the server and root, by the
// kernel's word (peer credentials); they need no token. Every TCP caller needs
// the token if there is one. Without a token a TCP listener must be on a
// loopback address, or New refuses it ([CheckListen]); it admits the same two
// users, because the kernel reports the user of a socket on this machine (package
// internal/peer), and it refuses requests that a foreign web page could have caused
// (package face, Guard). A caller whose user is not
// known is refused: one that has left already, one in another network
// namespace, one whose address was rewritten on the way. A proxy counts as the
// user that it runs as. Config.Insecure turns all three off.
//
// The part of a route says what its callers have to show (part.Route.Access). A route
// that says nothing needs Authorization: Bearer <token>, or a session of the page
// (Config.Session); one that only reads is admitted to what its route says is read
// (part.Route.Reads), and to nothing else. /-/healthz and /-/readyz
// are open to all, and have no facts in them; /-/metrics needs the token.
//
// # Limits
//
// Each number of [Limits] has a default. A request above one is refused
// with 503, a Retry-After header and a text that names the limit.
//
// The header of a request alone identifies its caller. A stranger is refused before
// any of the body is read (where a body may hold the proof, its part bounds it: see
// package face/envd).
//
// A server that is told to end lets requests run on for 2 s. Then they are cut off, and Run
// waits up to a second more until they have returned: what they write down at their end,
// such as what they have used, is written when the process ends.
//
// All bodies in flight share Config.Budget (512 MiB): 16 bytes for each byte
// of a message, 3 for each byte of one that carries input, at most 48 MiB for
// what is compressed, nothing for files that are stored as they come. Bodies and
// messages of up to 64 KiB are free. A body without room is refused at
// once with 429 or RESOURCE_EXHAUSTED; those that have room, and all small ones, are
// served. A handler that waits gives back what it needed only for decoding: a tool of MCP
// that is under way holds 4 bytes for each byte of its message. A body that pauses for a minute is broken off, and one that
// is charged must come at 16 KiB a second after its first minute; a large
// message of a stream of input counts as a body. A message of more than 266,240
// fields is refused before it is decoded ([face.MaxFields]).
package server
