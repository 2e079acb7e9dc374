// Package envdfs serves the file half of E2B's envd protocol: GET, HEAD and
// POST /files, POST /files/compose, and the connect service
// filesystem.Filesystem with its watchers. Its state is the polled watchers
// only; they end with the Face.
//
// # Who may ask
//
// POST /files/compose and the service are behind the access token, which the
// middleware of internal/protocol/envd checks. GET and POST /files check it here, because
// they accept a signature in its place:
//
//	signature = "v1_" + base64(sha256(path ":" op ":" username ":" token [":" expiration]))
//
// base64 is standard without padding, op is "read" or "write", path and
// username are exactly the query's (empty if absent), expiration is in unix
// seconds. This is the protocol of the SDKs: do not change it.
//
// # For whom
//
// The REST paths take the user from the query (compose: the body), the service
// from the name in the Authorization header; else it is the default user.
// docs/protocols/envd-files.md has the table of answers.
package envdfs
