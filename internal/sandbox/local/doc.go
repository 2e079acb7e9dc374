// Package local is the sandbox driver with isolation: a sandbox has its own processes,
// files, users, network and limits, on this machine and without a container engine. The
// keeper creates the kernel's part of a sandbox, the container (package internal/core/container); this
// package keeps the records, names and times, and gives access to the inside.
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
//	<dir>/.images/…       what is known of images (package oci)
//
// A record is not synced to the disk at once: if the machine loses power in the next
// seconds, the creation or destruction of a sandbox is forgotten. Stop and Update sync
// it.
//
// # Snapshots
//
// A snapshot consists of a layer with everything that a sandbox has written, and the
// layers below it. It does not contain processes, nor /run and /dev/shm, which are
// memory. If nothing runs in the sandbox and it has nothing in memory, its directory is
// moved to become the layer, and the sandbox continues with an empty one: this takes as
// long for a gigabyte as for a byte. Otherwise the sandbox is frozen while its
// directory is copied.
//
// A sandbox with a disk limit is always copied, because files cannot be moved from its
// disk to a layer, which is on the machine's disk.
//
// An interrupted seal is finished when the sandbox is read or started again: its
// directory is then already in the layer (layer.Store.Sealed).
//
// # Templates
//
// A build runs its steps in a separate sandbox, which no list shows, and each step
// leaves a layer. The key of the layer is computed from all its inputs: the layer
// below, the step, the hash of the files, user, directory and environment. A step with
// a known key is not repeated. A build does not survive the server; its steps do, for a
// week.
//
// # A spare
//
// If Config.Spare is set, Run keeps one spare sandbox ready, with container and network but
// without a record. A creation without a name that has the same parameters as the
// previous one takes the spare and writes its record.
//
// # Who dies when
//
// The container survives server and keeper, and the next server finds it by its ID: a record
// without a container is a stopped sandbox, and a container without a record is ended. After a
// restart of the machine all sandboxes are stopped; paused ones stay paused, but lose
// their memory.
//
// # Locks
//
// Driver.joining comes before sandbox.mu, and is not taken under it.
// sandbox.life is held while a sandbox is started, stopped, paused or destroyed, then
// sandbox.starting, then sandbox.mu, then that of the registry.
package local
