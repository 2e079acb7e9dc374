// Package files does what the faces offer on files: stat, list, make, move,
// remove, read, write, replace, join, pack, label with metadata, search, and watch. It acts on behalf
// of a user: [Lookup] finds one, [FS] acts for it.
//
// # Whose rights
//
// FS does everything with the rights of the user and no others: a daemon that
// runs as root takes the user's ids and groups for each operation, on a thread
// that nothing else runs on meanwhile ([FS.Do]), and the kernel decides. So the
// user's symbolic links lead the daemon nowhere where they do not lead the
// user, whatever is swapped between two steps, and what is made is the user's
// without being given away. A daemon that is not root acts for its own user
// only; [Lookup] refuses all others.
//
// The habits of E2B's envd, which does all as root and then gives what it made
// to the user, are left where they are harmless: for the daemon's own user.
// Root's uploads go anywhere, and what they replace becomes root's.
//
// No operation, not even one of root's, follows a link of /proc that stands
// for an open file, such as /proc/self/fd/3 or /proc/1/cwd: those of the daemon
// lead to the memory that its roles share. Only regular files are opened, and
// without blocking, so that a FIFO or a device in the way of a path hangs
// nobody.
//
// # Inside a sandbox
//
// With a [Root], paths start at the root directory of a sandbox, and users are its
// own: the daemon reads its etc/passwd. The kernel keeps each path in the root
// (openat2 with RESOLVE_IN_ROOT), so that operations work from outside, without a
// program in the sandbox.
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
// Write works in place, as envd does: the inode, its mode and its hard links
// stay, and watchers see CREATE, CHMOD and WRITE of a new file, each once
// if it is small, and no other names. The first 64 KiB are read before the file
// is touched, so an upload of that size happens wholly or not at all. A longer
// one that breaks off removes the file if it made it, and leaves it empty if it
// was there before: no part of a file is left that could be taken for the
// whole. Replace writes beside the file and puts that in its place at the end: nobody sees
// a part, and a daemon that is killed leaves the file as it was.
//
// # What has no end
//
// Files that the kernel makes up, as those of /proc and /sys, are read at once,
// without waiting, and up to [MaxPseudo] bytes; beyond that they are
// [ErrEndless]. A directory has at most a million names. Listings, copies and
// walks end with their context.
package files
