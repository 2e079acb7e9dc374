// Package image makes and repairs the files that hold the disks of sandboxes (package
// keeper/disk mounts them). A file is sparse: it takes of the machine's disk what was
// written to it and not removed again, and 100 to 200 KiB for a start.
//
// The filesystem has no journal: nothing of a sandbox is forced to the disk anyway, and a
// journal would be a thread of the kernel for each. After a machine has lost its power
// e2fsck does what a journal would have done ([Repair]).
//
// mkfs.ext4 and e2fsck are programs of e2fsprogs, which nearly every Linux has. They end with
// the process that runs them, after 10 minutes (e2fsck: and one for each GiB) at the latest.
// While one runs it has the lock of its file, so that there is one at a time, whoever died.
package image
