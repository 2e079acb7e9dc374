// Package native serves tend.v1, tend's own API, over Connect (HTTP/1.1 and
// HTTP/2, binary and JSON, gRPC and gRPC-Web): the whole of [process.Manager], the
// sandboxes of a [driver.Driver], declared services, and the administration of the daemon. The messages are specified in
// proto/tend/v1; the Go client is package sdk/go.
//
// # Streams
//
// Read, Events and Wait begin by showing that they are open (Read and Events
// with a hello), send a heartbeat when nothing else was sent for 15 seconds,
// and end with going_away when the server stops. A client that hears nothing
// for three heartbeats may treat the connection as dead. Messages of Read, Run
// and Events that are at hand together are sent together.
//
// The offset -1 ("now") of Read is resolved before the reader is opened and sent in the
// hello, so that a client that loses the stream can resume at its start.
//
// # Sandboxes
//
// A call of the ProcessService or the ViewService with the header Tend-Sandbox is for
// the processes of the sandbox with that ID or name. For an unknown sandbox the error
// is not_found; for an empty or repeated header it is invalid_argument: no call that
// names a sandbox reaches the machine. If the driver lacks an ability, the error is
// unsupported. A call of the FileService without the header is for the machine.
//
// # Files by plain HTTP
//
// A browser cannot send a stream of messages, and it can save a download to the disk
// only if it comes as a plain body. So there are these routes, with the query "path"
// and "user" and the header Tend-Sandbox as in the FileService, and with errors in
// Connect's form:
//
//	GET /tend.v1.FileService/Content  a file, or ranges of it. The ETag is its version
//	PUT /tend.v1.FileService/Content  makes the body the file, at once and as a whole; one that
//	                                  breaks off changes nothing. With If-Match: ETag only
//	                                  if it still is that version, with If-Match: * only if
//	                                  there is one, with If-None-Match: * only
//	                                  if there is none; else 409, "aborted" or "already_exists".
//	                                  Without these, whatever there is. The answer has the ETag
//	GET /tend.v1.FileService/Archive  a directory as a tar; what could not be read is listed in
//	                                  its last entry
//	PUT /tend.v1.FileService/Archive  unpacks the body, a tar or tar.gz, below a directory, which
//	                                  is created if it is missing. A file replaces what has its
//	                                  name. A call that fails leaves what was unpacked before
//
// GET /tend.v1.FileService/Watch, with "recursive=true" for the directories below as well (at
// most 100,000), answers with a line of JSON for each change in a directory from the first line
// on:
//
//	{"path":"NAME","kind":"KIND","dir":true}  "." is the directory itself. KIND is create, write,
//	                        remove, rename (of a former name; its new one is created), or chmod;
//	                        dir is there for what was created as a directory
//	{}                      the first line, and a heartbeat
//	{"goingAway":true}      the last one of a server that goes away
//	{"error":{…}}           the last one, in Connect's form: the directory is gone, or "aborted"
//	                        with the kind LAGGED, where more came than is kept: changes are missing
//
// A browser that opens such a URL executes nothing of the file: it is an attachment
// without a type, in a sandbox of the browser.
//
// # Limits
//
// A message has at most 16 MiB. Each field has the limits of the domain types, and a
// field that exceeds them is refused by name. Compressed requests are refused, because
// a few bytes could expand to gigabytes.
package native
