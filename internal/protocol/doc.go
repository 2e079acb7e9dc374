// Package protocol holds code that the wire protocols of the server share. A face is one
// protocol that clients speak to tend: envd, the native API, and so on. It turns wire
// messages into calls of [process.Manager] and reads of [process.Reader], and has no
// state except its connections.
//
// A new face is a new package. It is a part of the server ([module.Router]), gets its
// output from [Stream], and passes the suite of package protocoltest.
//
// # Connections that a face takes over
//
// Output streams to HTTP/1.1 clients are written directly to the connection, because a
// stream that is idle for hours does not need the buffers and goroutines that net/http
// keeps for a request. When such a stream has ended cleanly, the connection returns to
// the HTTP server through [Listener] and serves the next request.
package protocol
