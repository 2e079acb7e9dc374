// Package native serves tend.v1, tend's own API, over Connect (HTTP/1.1 and
// HTTP/2, binary and JSON, gRPC and gRPC-Web): the whole of [process.Manager], the
// sandboxes of a [driver.Driver], declared services, and the administration of the daemon. The messages are specified in
// proto/tend/v1; the Go client is the root package of this module.
//
// # Streams
//
// Read, Events and Wait begin by showing that they are open (Read and Events
// with a hello), send a heartbeat when nothing else was sent for 15 seconds,
// and end with going_away when the server stops. A client that hears nothing
// for three heartbeats may treat the connection as dead. Messages of Read, Run
// and Events that are at hand together are sent together.
//
// The offset -1 ("now") of Read is resolved before the reader is opened and
// sent in the hello, so that a client that loses the stream can come back to
// where it began.
//
// # Sandboxes
//
// A call of the ProcessService or the ViewService with the header Tend-Sandbox is
// for the processes of the sandbox with that ID or name. One that there is not is
// not_found, and a header that is empty or comes twice invalid_argument: no call
// that names a sandbox reaches the machine. An ability that the driver lacks is
// unsupported. A call of the FileService without the header is for the machine.
//
// # Files by plain HTTP
//
// A browser cannot send a stream of messages, and puts what it downloads on the disk only if it
// comes as it is. So there are, with the query "path" and "user" and the header Tend-Sandbox as in
// the FileService, and errors in Connect's form:
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
//
// A browser that is led there runs nothing of what it gets: it is an attachment without a type,
// and in a sandbox of the browser's.
//
// # Limits
//
// A message has at most 16 MiB; each field has the bounds of the domain, and
// what exceeds them is refused with the name of the field. Compressed requests
// are refused: a few bytes could stand for gigabytes.
package native
