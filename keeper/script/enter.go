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
	// sandbox from each other. Those of a zygote have one domain together.
	Landlock int
	// OneID: the sandbox has one id, which the program has whatever User says. User decides
	// about the capabilities alone.
	OneID bool
	// NNP: an exec gives no rights (PR_SET_NO_NEW_PRIVS): sudo does not work.
	NNP bool
	// Tasks opens the files "tasks" of the sandbox's groups in cgroups v1. Start closes them.
	// Nil: there are none.
	Tasks func() ([]int, error)
	// Zygote is the sandbox's own; nil: it has none. Starts with one are all of the same PID1,
	// Flags, Caps, Filter, Landlock and NNP, and of the same groups as long as it is not ended.
	Zygote *Zygote
}

// Zygote makes the children of most starts in one sandbox: a process that has the namespaces,
// groups and rights of programs inside already. The second start makes it, and it lives until
// End, or the death of this process. What it cannot do is done without it.
type Zygote struct {
	// Shared is memory of a file, and the file, in which PIDAt, FailedAt and Inner of starts
	// lie. It is always the same.
	Shared func() (memory []byte, fd int)
	// Group opens the cgroup v2 directory that the process is in.
	Group func() (int, error)
	// Filter is that of programs, but for calls of clone3(2) with this key as the last three
	// arguments, which the kernel does not look at.
	Filter func(seccomp.Key) (seccomp.Filter, error)
	// ResetOOM: programs have OOM score 0, whatever the parent has.
	ResetOOM bool

	state
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
