package script

import "github.com/tend-run/tend/internal/seccomp"

// Enter has a program start inside a sandbox: in the namespaces of a process, and with
// fewer rights than that one.
//
// Two children are made. The first enters the namespaces, makes the second one there as a
// child of the parent's, and ends. The second becomes the program. Until then it shares
// the parent's memory, and who is inside may look into that if the kernel lets them: so
// the first Enter makes the parent's memory not dumpable (PR_SET_DUMPABLE), which shuts
// out all without CAP_SYS_PTRACE in the parent's own user namespace. /proc shows such a
// parent's files as root's.
//
// Nobody is started inside while fs.suid_dumpable is 1, with which the kernel itself
// opens the memory when the child changes its user ([ErrDumpable]).
type Enter struct {
	PID1  int // a pidfd of the sandbox's first process
	Flags int // CLONE_NEW* of the namespaces to enter
	// Inner receives the pid that the program has inside, before it runs. Nil: nobody.
	Inner *uint32
	// Caps are the capabilities that root inside keeps, a bit each; another user has
	// none. What is not in it can be got back by no exec.
	Caps   uint64
	Filter seccomp.Filter // of system calls; nil: none
	// Landlock is a ruleset (landlock_create_ruleset(2)); 0: none. Each start makes a
	// domain of its own: a scope of signals or abstract sockets also parts programs of one
	// sandbox from each other.
	Landlock int
	// OneID: the sandbox has one id, which the program has whatever User says. User decides
	// about the capabilities alone.
	OneID bool
	// NNP: an exec gives no rights (PR_SET_NO_NEW_PRIVS): sudo does not work.
	NNP bool
}

// DefaultCaps are what root inside of a sandbox with its own user namespace may keep, as
// programs like package managers, servers and su need them. They hold for the files and
// processes of the sandbox alone.
const DefaultCaps uint64 = 1<<capChown | 1<<capDACOverride | 1<<capFowner | 1<<capFsetid | 1<<capKill | 1<<capSetgid | 1<<capSetuid |
	1<<capSetpcap | 1<<capNetBindService | 1<<capSysChroot | 1<<capSetfcap

// Numbers of linux/capability.h.
const (
	capChown          = 0
	capDACOverride    = 1
	capFowner         = 3
	capFsetid         = 4
	capKill           = 5
	capSetgid         = 6
	capSetuid         = 7
	capSetpcap        = 8
	capNetBindService = 10
	capSysChroot      = 18
	capSetfcap        = 31
)
