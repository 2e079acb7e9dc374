// Package checkpoint keeps a project as it was before a repair: it takes it back to
// that, or commits what the repair has changed, and nothing else.
//
// # What is in a checkpoint
//
// All files, links and directories below the root, with their modes, as they are in the
// work tree: changed, untracked, ignored, in the middle of a merge. Content that neither git's
// index nor the last commit has is kept in the private directory; without git that is all.
// The repository is only read.
//
// Bounds: 200,000 names, 64 MiB for one file, 256 MiB for what git does not have; without
// git 10,000 files; of what git ignores 2,000 files, 1 MiB each and 64 MiB in all. A
// project beyond the bounds of names or bytes is refused with a [LimitError]. A single
// file beyond them is left alone by Restore.
//
// Not in it, and never touched: .git, .tend, nested repositories and submodules, directories
// that tools make (node_modules, .venv, __pycache__, .next, .cache, and dist, build and
// target where git ignores them), sockets, FIFOs and devices, extended attributes.
//
// # Who changed what
//
// While the healer works, the service writes its files, and the user goes on editing. What
// changes between [Point.Absorb] and [Point.Mark] is the healer's; what changes between
// Mark and the next Absorb is somebody else's, and becomes a part of what Restore goes
// back to. So call Absorb before each act of the healer, and Mark after it. Both edited one
// file: the two are merged by lines. What was not marked counts as the
// healer's, as after a kill. A log that only grew does not.
//
// Restore never loses what it has not seen before: a copy of each file that it
// replaces or removes, and that nobody has marked as the healer's, is below Dir/kept.
//
// # Afterwards
//
// [TakeBack] takes back what was committed, or what an [Undo] has kept, once the checkpoint is
// gone. It refuses if a path of it has changed since, and does it by one commit: before that
// nothing is done, and afterwards the work tree follows.
//
// # Kills
//
// Every step leaves a state from which [Open] and the same call come to the same end.
// Take has happened once its last file is in place; before, Open returns [ErrNone], and
// [Clear] removes what there is. A
// checkpoint outlives kill -9, not a loss of power; damaged content is noticed, and not
// restored.
package checkpoint
