// Package disk mounts the disk of a sandbox: one file on this machine that holds a whole
// ext4 filesystem. What a sandbox writes, in bytes and in files, ends where its filesystem
// does, whatever its programs do; no quota of the kernel and no option of the machine's own
// filesystems is needed.
//
// # Nothing is left behind
//
// A [Mount] is in no mount namespace: it is a descriptor. Whoever mounts it for longer moves
// a copy into a namespace that ends with its processes. The loop device below it clears
// itself when its last mount is gone. So whoever is killed at whatever point, the kernel
// takes mount and loop device away, and there is nothing that the next one has to find.
//
// # One loop device for a file
//
// Two loop devices on one file would be two filesystems that overwrite each other. The
// file's lock (flock) is the rule: only its holder may attach a loop device, and the device
// keeps the lock, because the kernel holds the very descriptor that was locked. Where the
// lock is taken, the device that has it is looked for and shared: the kernel gives both the
// same filesystem. Whoever changes a file otherwise has the lock, too ([Lock]).
package disk
