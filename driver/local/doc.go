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
//	<dir>/<id>/disk.img   what it wrote, of one whose disk is limited: up and wk are in
//	                      this filesystem, and those beside it are empty
//	<dir>/.trash/…        what is being removed
//	<dir>/.layers/…       what sandboxes are stacked from (package layer)
//	<dir>/.snapshots/<id>.json  what is known of a snapshot
//	<dir>/.templates/<id>.json  what is known of a template
//
// A record is not forced to the disk at once: a machine that loses power in the next
// seconds forgets the creation, or the destruction, of a sandbox. Stop and Update
// force it.
//
// # Snapshots
//
// A snapshot is a layer of what a sandbox has written, and those below it. /run and
// /dev/shm are memory of the sandbox and no part of it; nor are processes. The
// directory of a sandbox in which nothing runs, and which has nothing in memory, is
// moved to be the layer, and the sandbox goes on with an empty one: that takes as long
// for a gigabyte as for a byte. One in which something runs stands still while its
// directory is copied.
//
// A sandbox whose disk is limited is copied, too: what is on its disk cannot be moved to a
// layer, which is on the machine's.
//
// A seal that is cut short is finished when the sandbox is read or started again: its
// directory is in the layer then (layer.Store.Sealed).
//
// # Templates
//
// A build does its steps in a sandbox of its own, which no list shows, and each step
// leaves a layer. Its key is the sum of what led to it: the layer below, the step, the
// hash of the files, user, directory and environment. A step with a key that is known is
// not done again. A build does not outlive the server; its steps do, for a week.
//
// # A spare
//
// Run keeps one sandbox ready that nobody has asked for, if Config.Spare says so: with box
// and network, and without a record. A creation without a name that asks for the same as
// the one before writes the record.
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
// Driver.joining comes before sandbox.mu, and is not taken under it.
// sandbox.life is held while a sandbox is started, stopped, paused or destroyed, then
// sandbox.starting, then sandbox.mu, then that of the registry.
package local
