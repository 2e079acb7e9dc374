// Package local is the sandbox driver that isolates: a sandbox has processes, files,
// users and a network of its own, and limits, on this machine and without a container
// engine. The kernel's part of it, a box, is made by the keeper (package process/box);
// this package keeps the records, names and times, and reaches inside.
//
// # On disk
//
//	<dir>/<id>/box.json   what is known of the sandbox, replaced as a whole; written
//	                      last: without it there is no such sandbox
//	<dir>/<id>/up, wk     what it wrote, and a directory for the kernel
//	<dir>/.trash/…        what is being removed
//
// A record is not forced to the disk at once: a machine that loses power in the next
// seconds forgets the creation, or the destruction, of a sandbox. Stop and Update
// force it.
//
// # Who dies when
//
// The box outlives server and keeper, and the next server finds it by its ID: a
// record without a box is a stopped sandbox, a box without a record is ended. When the
// machine is restarted, all sandboxes are stopped; those that were paused stay so,
// without what was in their memory.
//
// # Locks
//
// sandbox.life is held while a sandbox is started, stopped, paused or destroyed, then
// sandbox.starting, then sandbox.mu, then that of the registry.
package local
