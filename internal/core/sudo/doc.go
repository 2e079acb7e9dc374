// Package sudo is the program /usr/bin/sudo of isolated sandboxes: it runs a command as the
// sandbox's root, without a password. Nothing has a setuid bit, inside or outside, and no
// process gains rights: the daemon starts a second process, as root inside, which runs the
// command for the first one. The protocols may start commands as root anyway.
//
//	client, as the caller                        daemon        helper, as root inside
//	listens on an abstract socket, random name
//	POST /-/sudo/NAME on localhost:49983   ──►   starts   ──►  connects to NAME
//	looks at the peer: root                                    looks at the peer: root, or "user"
//	sends descriptors 0, 1, 2, its directory, arguments, environment ──► runs the command in a group of its own
//	sends signals that it gets           ──────────────────►   passes them on
//	ends as the command did              ◄──────────────────   the exit status
//
// An abstract name belongs to the network of the sandbox, and the kernel says who is at the other
// end, so no other sandbox and no other user comes between. When the client is gone, the command
// is killed. The command has the caller's terminal as its descriptors, not as its controlling
// terminal: /dev/tty and job control are not there.
//
// It is part of tend-keeper, under the name sudo; the layer of the template base has a copy. The
// path of the request is all that both sides of different versions share.
package sudo

// Allowed is the account that may use it, beside root.
const Allowed = "user"

// Door is the path of the request, without the name; the name has nameLen hex digits.
const Door = "/-/sudo/"

// NameLen is how long a name is.
const NameLen = 32

// Helper is the first argument of the process that the daemon starts; the name is the second.
const Helper = "--tend-root"

// Path is where the program is inside.
const Path = "/usr/bin/sudo"

// prefix of the abstract socket.
const prefix = "tend-sudo-"
