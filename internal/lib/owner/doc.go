// Package owner is the one rule by which a file of somebody is obeyed: a repository of git,
// a playbook, a pid file. What such a file says is done with the rights of a user, so whoever
// may write it has these rights.
//
// A file is obeyed on behalf of a user if it and each directory above it belong to that user or
// to root, and nobody else may write them. A symbolic link on the way is followed if it is
// theirs, and what it leads to is looked at in the same way. A directory that others may write
// is accepted above a file if it has the sticky bit, such as /tmp: nobody renames or removes
// there what is not their own. Git, OpenSSH and systemd have the same rule.
//
// Group members are others, unless the group has no members but that user and root, as where
// each user has a group of their own and the umask is 002.
//
// Once a path has been checked nobody else can put something else there, so it may be
// opened by its name afterwards.
package owner
