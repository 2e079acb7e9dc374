// Package mcp serves the Model Context Protocol: tools with which a language model runs
// programs, reads their output, types into them and edits files. The tools are designed
// for models and do not copy the API: there are few, and each answers in text within
// the caller's token budget, and names omitted parts by absolute offset.
//
//	POST /mcp     one message of the client; the answer is a stream of events
//	GET /mcp      continues with a stream that broke off (Last-Event-ID)
//	DELETE /mcp   ends a session, which has nothing to end
//
// `tend mcp` serves the same on stdin and stdout: it passes each line on to /mcp of
// the daemon, and each answer back. So there is one place where tools run.
//
// # Sessions
//
// A session has no state: its ID only distinguishes clients that number their requests
// from the same start. So there may be any number of sessions, they never expire, and
// sessions of a dead server continue at the next one. A server with session state would
// have to answer 404 and lose each call in progress. Each request itself names what a
// session would hold: the process, the offset, the sandbox.
//
// # A call is made once
//
// Each call has a key, random or the client's (Idempotency-Key), and its effects are
// named after the key: the process that it starts, the writer of its input. So a
// repeated call finds the earlier result. The first event of an answer contains the
// whole call in its ID, signed. A client whose stream breaks off sends that ID back, as
// the protocol defines, to this server or the next one: the call is repeated under its
// key, and its answer is that of the first call. So a kill -9 in the middle of a call
// loses and doubles nothing. The exception is a signal of stop, which leaves no trace
// and may be sent twice. A restart of a service happens once if the client returns with
// the ID, and at least once otherwise. Calls of more than maxResume bytes have no such
// ID.
//
// # Cancellation
//
// A cancelled run kills the tree of the process that it started; no other cancelled
// call kills anything. In versions of the protocol before 2026-07-28 a disconnect does
// not cancel; from that version on, a client cancels by disconnecting.
//
// # Who may call
//
// The server's token admits to everything, the token of a sandbox (native API,
// SandboxAccess) to that sandbox. Tend-Sandbox names a sandbox, by ID or name; such a
// client reaches nothing outside of it, and does not see tools that it cannot use.
package mcp
