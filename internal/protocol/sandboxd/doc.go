// Package sandboxd serves the protocol of the runtime that agent-sandbox of Kubernetes has in its pods: files,
// health and metadata by REST on one listener, processes by gRPC on another one. docs/protocols/sandboxd.md says how
// it differs from the original.
//
// # Paths
//
// All paths are kept to one directory, the root: the kernel says where a path has led, after it was opened
// ([files.FS] with Within), so a link that is swapped meanwhile leads nowhere else. An absolute path below the root
// is taken as it is, any other one begins at the root.
//
//	GET, HEAD /v1/files/{path}     a file, or the list of a directory
//	PUT       /v1/files/{path}     ?mode=0644: replaces a file as a whole
//	DELETE    /v1/files/{path}     ?recursive=true
//	GET       /v1/health           200; 503 while the daemon ends
//	GET       /v1/metadata         variables of the environment that have the prefix
//
// # Processes
//
// Processes have numbers: 1, 2, 3, …, in their tag ("sandboxd-7"), so that the next server finds those that still
// run, and begins after them. A number is good until the stream of Start has ended; the process of a stream whose
// client leaves is killed with its tree. A server that stops kills nothing.
//
// # Callers
//
// The protocol knows no proof of who calls: the network of the pod decides. Requests that a web page has sent are
// refused, because no client of the protocol is one.
package sandboxd
