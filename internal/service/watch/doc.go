// Package watch reports changes of files that match globs, using the kernel's
// notifications. It wakes up only when something changes.
//
// A glob is relative to a directory. A glob that names a directory also stands for
// everything below it: src is also src/**. Links are not followed. These never count,
// nor anything below them: .git and node_modules anywhere, *.log, and the temporary
// files of editors. A changed mode, owner or time is not a change.
//
// The directory is on this machine (Open), or in a sandbox (OpenIn); the reports are
// the same.
//
// A Sum describes the files at one moment, so that changes during a time without a
// watcher are found.
//
// Changes in quick succession are merged. Directories that are created, moved, removed
// and created again are followed, including the first one.
package watch
