// Package e2bapi is the face that speaks E2B's control plane, so that the unmodified
// e2b SDKs of npm and PyPI make, find, pause and end sandboxes here. A sandbox is
// one of a driver.Driver; what runs in it is reached through envd's protocol
// (package envd). docs/protocols/e2b.md has the routes, and what is refused.
//
// # Two generations
//
// SDKs up to 2.50 create and connect below /sandboxes, those from 2.51 on (PyPI
// 2.63) below /v2/sandboxes. Both are served. The LangSmith face has longer paths
// below /v2/sandboxes, so everything else there is one route of this face.
//
// # Answers
//
// The code of a success is part of the protocol: the Python client reads a body
// only with the very code of E2B's specification. An error is {"code", "message"}
// with the HTTP status as its code: the JavaScript client looks at the code in the
// body, the Python client at the status. What the driver cannot do is refused with
// 501 and a text that names the field; nothing that an SDK sends is dropped in
// silence. Clients repeat a request that was answered 429, 502, 503 or 504, so no
// final refusal has these codes, but for "too many sandboxes", which forbids the
// repetition by a header.
//
// # Keys
//
// While the server needs no token, any key is good. With a token T a key is T itself
// or [Key](T), which has the form that older SDKs demand (e2b_ and hex digits). It is
// checked before anything of the body is read.
//
// # IDs
//
// A sandbox is found by its ID alone: names may be given to another sandbox. A
// call that has begun to change something goes on although the client leaves.
package e2bapi
