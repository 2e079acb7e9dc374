// Package langsmith is the face that speaks the LangSmith sandbox protocol, so
// that the unmodified langsmith SDKs of npm, PyPI and Go run commands here and
// resume them at the byte where they were. docs/protocols/langsmith.md has the
// facts; this comment has our own choices.
//
// # Control plane
//
// Boxes under /v2/sandboxes and /api/v2/sandboxes are sandboxes of a
// driver.Driver. The answer for a box has the dataplane_url
// <base>/langsmith/<id>, where <base> is how the client reached us.
//
// # Commands
//
// A command is a process of the box. Its process ID is made of the box's ID
// and the command_id, so that "execute" is get-or-create for any number of
// clients, over restarts of every role, without a table of our own: the
// process manager starts an ID once. What else must be known later is in the
// process's labels.
//
// # Offsets
//
// Offsets count the bytes of the UTF-8 text that was sent, see package
// transcode. The map from text to raw offsets of a running or finished command
// is shared by its connections; it is kept in Config.Dir when it would be slow
// to make again, and otherwise made again from the spool.
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
