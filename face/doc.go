// Package face holds what the wire protocols of the server share. A face is
// one protocol that clients speak to tend: envd, the native API, and so on.
// It turns wire messages into calls of [process.Manager] and reads of
// [process.Reader], and keeps no state but its connections.
//
// A new face is a package of its own. It is a part of the server
// ([part.Router]), takes its output from [Stream], and runs package facetest
// against itself.
//
// # Connections that a face takes over
//
// Output streams to HTTP/1.1 clients are written to the connection itself,
// because a stream that is idle for hours needs none of the buffers and
// goroutines that net/http keeps for a request. When such a stream has ended
// cleanly, the connection goes back to the HTTP server through [Listener] and
// serves the next request.
package face
