// Package files does what the faces offer on files: stat, list, make, move,
// remove, read, write, join, label with metadata, and watch. It acts on behalf
// of a user: [Lookup] finds one, [FS] acts for it.
//
// # Whose rights
//
// FS does the work with the rights of the daemon and then gives what it made
// to the user. A daemon that runs as root therefore reads and writes anything
// for any user, as E2B's envd does, whose clients rely on it: who may ask is
// decided by the token of the server, not by file modes. A daemon that is not
// root acts for its own user only; [Lookup] refuses all others rather than
// create their files under a wrong owner.
//
// What a process in the sandbox can do to the daemon is bounded: ownership is
// changed through descriptors and never by a path that could be swapped for a
// symbolic link in between, and only regular files are opened, without
// blocking, so that a FIFO or a device in the way of a path hangs nobody.
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
// stay, and watchers see CREATE and WRITE of the file and nothing else. The
// first 64 KiB are read before the file is touched, so an upload of
// that size happens wholly or not at all. A longer one that breaks off removes
// the file if it made it, and leaves it empty if it was there before: no part
// of a file is left that could be taken for the whole.
package files
