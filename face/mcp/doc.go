// Package mcp serves the Model Context Protocol: tools with which a language model
// runs programs, reads their output, types into them and edits files. The tools are
// made for models, and are no copy of the API: there are few, each answers in text
// within the tokens that the caller gives, and says by absolute offset what it left
// out.
//
//	POST /mcp     one message of the client; the answer is a stream of events
//	GET /mcp      goes on with a stream that broke off (Last-Event-ID)
//	DELETE /mcp   ends a session, which has nothing to end
//
// `tend mcp` serves the same on stdin and stdout: it passes each line on to /mcp of
// the daemon, and each answer back. So there is one place where tools run.
//
// # Sessions
//
// A session has no memory: its ID only tells apart the clients that count their
// requests from the same number. So there may be any number, they never expire, and
// those of a server that died go on with the next one, where a server with memory
// would have to answer 404 and lose each call under way. What a session would hold,
// a request names: the process, the offset, the sandbox.
//
// # A call is made once
//
// Each call has a key, random or the client's (Idempotency-Key), and what it does is
// named after the key: the process that it starts, the writer of its input. A repeated
// call finds what was done. The first event of an answer has the whole call in its id,
// signed. A client whose stream breaks off sends that id back, as the protocol has it,
// to this server or the next one: the call is made again under its key, and the
// answer is that of the first one. So a kill -9 in the middle of a call loses and
// doubles nothing, but for a signal that stop sends, which leaves no trace: it may be sent
// twice. A restart of a service is made once for one who comes back with the id, and at
// least once for others. Calls of more than maxResume bytes have no such id.
//
// # Cancellation
//
// A cancelled run kills the tree of what it started, no other cancelled call kills
// anything. A client that leaves without a word has not cancelled, in the versions of the
// protocol before 2026-07-28; from that one on, leaving is how it cancels.
//
// # Who may call
//
// The server's token admits to everything, the token of a sandbox (native API,
// SandboxAccess) to that sandbox. Tend-Sandbox names one, by ID or name; such a
// client reaches nothing outside of it, and is not shown what it has no use for.
package mcp
