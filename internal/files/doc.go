// Package files implements the file operations of the faces: stat, list, mkdir, move,
// remove, read, write, replace, compose, archive, metadata, search, and watch. It acts
// on behalf of a user: [Lookup] finds the user, [FS] acts for it.
//
// # Whose rights
//
// FS does everything with exactly the rights of the user: a daemon of root takes the
// user's ids and groups for each operation, on a thread that runs nothing else
// meanwhile ([FS.Do]), and the kernel decides. So symbolic links lead the daemon only
// where they lead the user, whatever is swapped between two steps, and new files belong
// to the user without a chown. A daemon that is not root acts only for its own user;
// [Lookup] refuses all others.
//
// E2B's envd does everything as root and then gives the new files to the user. FS does so
// only where it is harmless: for the daemon's own user (uploads by root go anywhere, and
// the files that they replace then belong to root), and inside a sandbox, if asked to
// ([FS.AsRoot]).
//
// No operation, not even one of root's, follows a link of /proc that stands for an open
// file, such as /proc/self/fd/3 or /proc/1/cwd: the daemon's own links lead to the
// memory that its roles share. Only regular files are opened, and without blocking, so
// a FIFO or a device in a path blocks nothing.
//
// # Inside a sandbox
//
// With a [Root], paths start at the root directory of a sandbox, and users are the
// sandbox's own: the daemon reads its etc/passwd. The kernel confines each path to the
// root (openat2 with RESOLVE_IN_ROOT), so operations work from outside, without a
// program in the sandbox.
//
// With AsRoot the user has the capabilities of root inside, as [Root] describes them.
// Files and directories that appear belong to the user from their first moment: nothing
// is given away by a name that a program may have taken meanwhile. A file that is written
// is given to the user; what is moved keeps its owner. An owner
// that a file cannot get (each of a [OpenOwnRoot], or that of a file of this machine which
// all may write) is left out, and [Entry.Mine] says so.
//
// # Paths
//
// A path may be absolute, start with ~ or ~/ (the user's home), or be
// relative to the home. The empty path is [FS.Workdir], or the home if that is
// empty. ~name is refused. Paths are cleaned as text; symbolic links are left
// as they are. A path holds at most [MaxPath] bytes and no NUL.
//
// # Uploads that break off
//
// Write works in place, as envd does: the inode, its mode and its hard links stay, and
// watchers see CREATE, CHMOD and WRITE of a new file, each once if it is small, and no
// other names. The first 64 KiB are read before the file is touched, so an upload of
// that size happens wholly or not at all. If a longer one breaks off, a new file is
// removed and an existing file is left empty: no partial file remains that could be
// mistaken for a complete one. Replace writes to a file beside it and renames that at
// the end: a partial file is never visible, and if the daemon is killed, the old file
// stays.
//
// # What has no end
//
// Files that the kernel generates, such as those of /proc and /sys, are read at once,
// without waiting, and up to [MaxPseudo] bytes; beyond that the error is [ErrEndless].
// A directory has at most a million names. Listings, copies and walks end with their
// context.
package files
