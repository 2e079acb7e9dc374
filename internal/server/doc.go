// Package server implements the server role, which clients talk to: listeners,
// authentication, limits, metrics and probes around a driver and a list of parts
// (package internal/protocol/module). It knows no part by name. It owns no process and no output, so it can
// be killed and restarted at any moment.
//
// # Who may call
//
// A unix socket admits the user that runs the server and root; the kernel reports the
// caller (peer credentials). They need no token. Every TCP caller needs the token if
// there is one. Without a token a TCP listener must be on a loopback address, or New
// refuses it ([CheckListen]); it admits the same two users, because the kernel reports
// the user of a socket on this machine (package internal/lib/peercred), and it refuses requests
// that a foreign web page could have caused (package internal/protocol, Guard). A caller whose user
// is unknown is refused: a caller that has already left, one in another network
// namespace, or one whose address was rewritten on the way. A proxy counts as the user
// that it runs as. Config.Insecure turns all three checks off.
//
// A route declares what its callers must prove (module.Route.Access). By default it needs
// Authorization: Bearer <token>, or a session of the page (Config.Session); a read-only
// session is admitted only to requests that the route declares as reads
// (module.Route.Reads). /-/healthz and /-/readyz are open to all and contain no private
// data; /-/metrics needs the token.
//
// # Limits
//
// Each number of [Limits] has a default. A request above one is refused
// with 503, a Retry-After header and a text that names the limit.
//
// Only the header of a request identifies its caller. An unknown caller is refused
// before any of the body is read (if a body may contain the proof, its part limits the
// body: see package internal/protocol/envd).
//
// A server that is told to end lets requests continue for 2 s. Then they are cut off,
// and Run waits up to one more second until they have returned, so that they can still
// record their results, such as their usage, before the process ends.
//
// What is held for clients is on Config.Budget, with a share for each sandbox and key
// (package budget; docs/limits.md has the whole list). A body is charged for with 16 bytes
// for each of its bytes, less if it is long ([protocol.Decoding]), 3 for each byte of one that
// carries input, at most 48 MiB for a compressed one, nothing for files that are stored as
// they arrive. Bodies and messages of up to 4 KiB are free. If the budget has no room for a
// body, it is refused at once with 429 or RESOURCE_EXHAUSTED; bodies that fit, and all small
// ones, are served. A handler that waits gives back the part that was needed only for
// decoding: a running MCP tool holds 4 bytes for each byte of its message. A body that
// pauses for a minute is cut off, and one that is held must arrive at 16 KiB a second after
// its first minute; a message of an input stream of more than 64 KiB counts as a body. A message of more than 266,240
// fields is refused before it is decoded ([protocol.MaxFields]).
package server
