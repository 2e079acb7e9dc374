// Package disk mounts the disk of a sandbox: one file on this machine that holds a
// whole ext4 filesystem. The size of this filesystem limits what a sandbox writes, in
// bytes and in files, whatever its programs do. This needs no kernel quota and no
// option of the machine's own filesystems.
//
// # Nothing is left behind
//
// A [Mount] is in no mount namespace: it is a descriptor. A caller that needs the mount
// for longer moves a copy into a namespace that ends with its processes. The loop
// device below it clears itself when its last mount is gone. So whichever role is
// killed at any point, the kernel removes mount and loop device, and the next role has
// nothing to clean up.
//
// # One loop device for a file
//
// Two loop devices on one file would be two filesystems that overwrite each other. The
// file's lock (flock) prevents this: only its holder may attach a loop device, and the
// device keeps the lock, because the kernel holds exactly the locked descriptor. If the
// lock is taken, the device that holds it is found and shared: the kernel then gives
// both users the same filesystem. Other code that changes a file also takes the lock
// ([Lock]).
package disk
