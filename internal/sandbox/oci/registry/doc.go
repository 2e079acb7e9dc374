// Package registry fetches images from registries, by the distribution protocol of OCI and
// Docker: an index, the manifest for this machine, and the layers that are missing.
//
// # Credentials
//
// A request has credentials of its own, or those of this machine, if it may use them: what
// "docker login" and "podman login" have stored. They go to the registry, and to the token
// server that it names, over TLS or to this machine itself; never to a host that it redirects
// to.
//
// # Where a request may lead
//
// Plain HTTP is for this machine alone (localhost, 127.0.0.0/8, ::1), and for mirrors that the
// operator wrote with http://. [Request].May is asked for each address before it is dialed,
// after names are resolved: for requests of callers that are not the daemon's owner.
//
// # What is believed
//
// Nothing: manifest and configuration have the digests by which they were asked for, and so
// have layers. A body that is cut off, or silent for a minute, is continued by a range; 429 and
// errors of the server are repeated some times, at most as long as Retry-After and a minute.
package registry
