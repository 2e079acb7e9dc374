// Package watch tells when files change that globs name, by the kernel's notices. It
// wakes up when something changes, and at no other time.
//
// A glob is relative to a directory. One that names a directory stands for all below it:
// src is src/** too. Links are not followed. What these name never counts, nor what is
// below: .git and node_modules anywhere, *.log, and what editors put beside a file for
// the time of saving it. A changed mode, owner or time is no change.
//
// The directory is one of this machine (Open), or of a sandbox (OpenIn); what is told is the
// same.
//
// A Sum says what the files are at a moment, so that changes are found of a time in which
// nobody watched.
//
// Changes that follow each other closely are one. Directories that are made, moved,
// removed and made again are followed, the first one too.
package watch
