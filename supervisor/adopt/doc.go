// Package adopt takes over processes that tend did not start: a dev server that somebody
// has started by hand, or that another supervisor has left. [Find] looks for the one that
// a declaration means, [Check] looks at one that a person has named, and both refuse what
// must not be taken over. [Open] then stands for it as a process.Process, for package run.
//
// # Which process
//
// A process is known by its pid and by the time at which it started, in ticks since the
// boot ([supervisor.Adopted]). Both are read while a pidfd of it is open, and compared
// each time before anything is done to it. So a pid that was given to another program is
// never taken for the one that was adopted. What was stored in an earlier boot is dropped
// by [supervisor.State.Rebase].
//
// # What is known of it
//
// It is no child of tend. Its end is seen by its pidfd, and its exit status is not: the
// cause is process.CauseLost, and no status is invented. Its output goes to where it went
// before, and so Read is refused.
//
// Its tree is what can be proven: the process, its descendants as long as their parents
// lead to it, those that were seen so before and live on, and its session if it leads one.
// A control group proves nothing here: that of a terminal or a login holds others, too.
//
// # Whom it refuses
//
// The first process of the machine, threads of the kernel, processes of another user than
// the service's, those in a container or a sandbox, the roles of tend, all that tend has
// started or watches already, and what tend itself runs below.
//
// Adoption works on Linux, from 5.3 on. Elsewhere it is process.ErrUnsupported.
package adopt
