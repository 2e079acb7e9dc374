// Package e2bapi is the face for E2B's control plane: with it the unmodified e2b SDKs
// of npm and PyPI create, find, pause and end sandboxes here. The sandboxes are those
// of a driver.Driver; clients reach the processes inside through envd's protocol
// (package envd). docs/protocols/e2b.md lists the routes, and the requests that are
// refused.
//
// # Two generations
//
// SDKs up to 2.50 create and connect below /sandboxes, those from 2.51 on (PyPI
// 2.63) below /v2/sandboxes. Both are served. The LangSmith face has longer paths
// below /v2/sandboxes, so everything else there is one route of this face.
//
// # Answers
//
// The code of a success is part of the protocol: the Python client reads a body only
// with the very code of E2B's specification. An error is {"code", "message"} with the
// HTTP status as its code: the JavaScript client looks at the code in the body, the
// Python client at the status. A request that the driver does not support is refused
// with 501 and a text that names the field; nothing that an SDK sends is silently
// ignored. Clients repeat a request that was answered with 429, 502, 503 or 504, so a
// final refusal never has these codes, except "too many sandboxes", which forbids the
// repetition by a header.
//
// # Keys
//
// If the server has no token, any key is accepted. With a token T the key must be T
// itself or [Key](T), which has the form that older SDKs require (e2b_ and hex digits).
// It is checked before any of the body is read.
//
// # IDs
//
// A sandbox is found only by its ID, because a name may be given to another sandbox
// later. A call that has begun to change something continues even if the client
// disconnects.
package e2bapi
