// Package host is the sandbox driver without isolation: every sandbox is this machine,
// with its own working directory and processes. It is meant for a daemon that runs
// inside a container or a virtual machine, which already isolates.
//
// # On disk
//
//	<dir>/<id>/box.json   what is known of the sandbox, replaced as a whole
//	<dir>/<id>/work       its working directory
//
// A user other than the daemon's cannot enter the daemon's directory. Access control
// lists (acl(5)) give the sandbox's user, and each user that a process names, access to
// the sandbox's own directory; others have none. If the filesystem does not support
// such lists, the sandbox of another user works in ~/.tend/boxes/<id> of that user.
//
// The processes of a sandbox carry the label tend.sandbox=<id>, so that
// the next server finds them again.
package host
