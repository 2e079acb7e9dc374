// Package git runs git on the repository of a project, for what the healer does: no program
// runs that a configuration names, and git has the rights of the owner of the repository, or is
// not run at all.
//
// # Which repository
//
// It is the one that git itself finds: the nearest .git at or above the project. It is used if
// [owner] allows it: .git, the directory that it names, the configuration there, and all that is
// above. So neither a .git that somebody puts into a shared directory above the project nor
// a file .git that names another's repository is used. Git's own check of this (safe.directory)
// looks at owners alone; it is not asked, since git is told where the repository is.
//
// # With whose rights
//
// Those of this process, if its user owns the repository. Root works on the project of another
// user, too, which has no user of its own for its service. Then git runs as that user, if the
// project and its repository both are theirs: it reads no object and follows no link with
// other rights than theirs, and what it makes is theirs. What else is done in the directory of
// the repository is done in the same way ([Repository.As]).
//
// # What does not run
//
// Hooks, filters, fsmonitor, programs for signatures, diffs, merges, conversions to text,
// editors, pagers, credentials, passwords and transports, automatic maintenance, and the fetch of
// objects that are missing. A file that needs a filter is not checked out: without it it would
// have another content. What git writes is bounded, and history is not as grafts and replaced objects
// have it.
package git
