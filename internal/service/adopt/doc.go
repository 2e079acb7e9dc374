// Package adopt adopts processes that tend did not start: a dev server that somebody
// started by hand, or that another supervisor left behind. [Find] finds the process
// that a declaration describes, [Check] checks a process that a person named, and both
// refuse processes that must not be adopted. [Open] then represents it as a
// process.Process, for package run.
//
// # Which process
//
// A process is identified by its pid and its start time, in ticks since the boot
// ([supervisor.Adopted]). Both are read while a pidfd of it is open, and compared
// before each action on it. So if the pid was given to another program, that program is
// never mistaken for the adopted process. [supervisor.State.Rebase] drops data that was
// stored in an earlier boot.
//
// # What is known of it
//
// It is not a child of tend. The pidfd reports its end but not its exit status: the
// cause is process.CauseLost, and no status is invented. Its output goes where it went
// before, so Read is refused.
//
// Its tree is the set that can be proven: the process, its descendants as long as their
// parents lead to it, live processes that were seen earlier as descendants, and its
// session if it leads one. A control group proves nothing here, because the group of a
// terminal or a login also contains other processes.
//
// # Whom it refuses
//
// The first process of the machine, kernel threads, processes of a user other than the
// service's, processes in a container or a sandbox, the roles of tend, processes that
// tend has started or already watches, and tend's own ancestors.
//
// Adoption works on Linux, from 5.3 on. Elsewhere it is process.ErrUnsupported.
package adopt
