// Package host is the sandbox driver without isolation: every sandbox is this
// machine, with a working directory and processes of its own. It fits a
// daemon that runs inside a container or a virtual machine, which isolates already.
//
// # On disk
//
//	<dir>/<id>/box.json   what is known of the sandbox, replaced as a whole
//	<dir>/<id>/work       its working directory
//
// A user other than the daemon's cannot enter the daemon's directory. Access lists
// (acl(5)) let the user of the sandbox, and each user that a process names, pass to
// the sandbox's own directory and act there. Others stay outside.
// Where the filesystem keeps no such lists, the sandbox of another user works in
// ~/.tend/boxes/<id> of that user.
//
// The processes of a sandbox carry the label tend.sandbox=<id>, so that
// the next server finds them again.
package host
