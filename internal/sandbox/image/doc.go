// Package image creates and repairs the files that hold the disks of sandboxes (package
// internal/core/disk mounts them). A file is sparse: it uses as much of the machine's disk as
// was written to it and not removed again, plus 100 to 200 KiB at the start.
//
// The filesystem has no journal: data of a sandbox is not synced to the disk anyway,
// and a journal would need a kernel thread for each sandbox. After a power loss of the
// machine, e2fsck does the work of a journal ([Repair]).
//
// mkfs.ext4 and e2fsck are programs of e2fsprogs, which nearly every Linux has. They
// end with the process that runs them, after 10 minutes (e2fsck: and one for each GiB)
// at the latest. While one runs, it holds the lock of its file, so only one runs at a
// time, whichever role has died.
package image
