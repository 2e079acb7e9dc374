// Package envd serves the process half of the protocol of E2B's envd, so that
// unmodified E2B SDKs run their commands and terminals on tend: the service
// process.Process over Connect, gRPC and gRPC-Web, and the REST paths /health,
// /init, /envs and /metrics. Package envd/envdfs serves the other half, files.
//
//	f, err := envd.New(envd.Config{Sandboxes: &route.Router{Default: host.NewMachine(m)}})
//	…
//	server.Config{Parts: []module.Part{f}}
//	defer f.Close()
//
// docs/protocols/envd.md lists the supported calls, the differences from the original,
// and the headers for additional functions.
//
// # The hot path
//
// The SDKs call Start and Connect with the JSON codec over HTTP/1.1. Such a
// request is parsed here, its connection is taken over from net/http, and its
// events are written by hand: the output straight from the spool into pooled
// frames. After the end the connection goes back to the HTTP server. The one
// goroutine of an idle stream holds no buffer.
//
//	request ── hotCodec ──┬── serveStream ── takeOver ── protocol.Stream ── frameSink ── connOutlet
//	                      │                └ HTTP/2, 1.0 ────────────── frameSink ── httpOutlet
//	                      └── connect-go ───────────────── protocol.Stream ── messageSink
//
// All other requests (gzip, gRPC, half a message, a malformed header) go to connect-go,
// so that error messages are the same.
//
// A reader that stops reading holds only its position in the spool and at most one
// batch of small events (16 KiB), because large frames are rebuilt when it continues.
// If a part of a frame was sent, the face holds the rest of it, because retention may
// free those bytes in the spool.
package envd
