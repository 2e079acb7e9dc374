// Package project is what the healer does to a project, where the project is: it reads and
// edits files under the rules of package guard, keeps checkpoints, matches playbooks, finds
// what runs beside the service, and takes over what a command has changed.
//
// [Local] does all of this in its own process, with the rights of that process. For the
// project of another user, and for one in a sandbox, Local is in a process of its own, which
// runs as that user, or inside: [Serve] is its program. [Remote] is the same [Project] over
// the pipes to it. So the kernel decides what is reached: no path, link or program of the
// project is followed or run with other rights than those of its user, or outside of its
// sandbox.
//
// What comes from such a process is a stranger's. It says what is in a project and what of it
// was changed, and is never a path or a program that anything here opens or runs.
//
// # On the wire
//
// Each request and each answer is a line of JSON: {"id", "method", "args"} and {"id",
// "result", "error"}. The first request is open, with a [Config]. One is answered after the
// other; {"id", "method": "cancel"} ends the one that is under way. The end of the input ends
// the process.
package project
