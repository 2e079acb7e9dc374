// Package langsmith is the face for the LangSmith sandbox protocol: with it the
// unmodified langsmith SDKs of npm, PyPI and Go run commands here and resume them at
// the byte where they stopped. docs/protocols/langsmith.md describes the protocol; this
// comment describes our own choices.
//
// # Control plane
//
// Boxes under /v2/sandboxes and /api/v2/sandboxes are sandboxes of a
// driver.Driver. The answer for a box has the dataplane_url
// <base>/langsmith/<id>, where <base> is how the client reached us.
//
// # Commands
//
// A command is a process of the box. Its process ID consists of the box's ID and the
// command_id, so "execute" is get-or-create for any number of clients, also after
// restarts of any role, and this face needs no table: the process manager starts an ID
// once. Other data that is needed later is in the process's labels.
//
// # Offsets
//
// Offsets count the bytes of the UTF-8 text that was sent, see package transcode. The
// connections of a running or finished command share the map from text to raw offsets.
// The map is stored in Config.Dir if it would be slow to rebuild, and otherwise rebuilt
// from the spool.
//
// # Frames
//
// Each message is one unfragmented text frame of less than 1 MiB, which is
// what Python's websockets accepts. Nothing but started, stdout, stderr, exit
// and error is ever sent; connections are kept alive by pings.
//
// # Locks
//
// Face.mu, textMap.mu and inputQueue.mu. Face.mu may be taken under
// inputQueue.mu; otherwise none is held while another is taken.
package langsmith
