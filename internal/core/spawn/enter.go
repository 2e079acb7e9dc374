package spawn

import (
	"sync/atomic"

	"github.com/tend-run/tend/internal/lib/seccomp"
)

// Enter has a program start inside a sandbox: in the namespaces of a process, and with
// fewer rights than that one.
//
// The first child enters the namespaces but those of users and cgroups, makes the next one there as
// a child of the parent's, and ends. The last one enters those too, and becomes the program. Until then it shares
// the parent's memory, and who is inside may look into that if the kernel lets them: so
// the first Enter makes the parent's memory not dumpable (PR_SET_DUMPABLE), which shuts
// out all without CAP_SYS_PTRACE in the parent's own user namespace. /proc shows such a
// parent's files as root's.
//
// A program inside makes no core file, and no handler of the machine's gets one: its limit
// is 1 byte, and Limits cannot change it if there is a Filter.
//
// Nobody is started inside while fs.suid_dumpable is 1, with which the kernel itself
// opens the memory when the child changes its user ([ErrDumpable]).
type Enter struct {
	PID1  int // a pidfd of the sandbox's first process
	Flags int // CLONE_NEW* of the namespaces to enter
	// Inner receives the program's pid inside, before the child makes its first call. Nil: not
	// wanted.
	Inner *uint32
	// Digits receives the program's pid outside, before the program runs, unless it has a terminal. The kernel tells the stub the pid
	// inside only, so the child itself reads its pid from the parent's /proc. Nil: not wanted.
	Digits *Digits
	// Caps are the capabilities that root inside keeps, one bit each; other users have
	// none. No exec can restore the others.
	Caps   uint64
	Filter seccomp.Filter // of system calls; nil: none
	// Landlock is a ruleset (landlock_create_ruleset(2)); 0: none. Each start makes its own
	// domain, so a scope of signals or abstract sockets also separates programs of one
	// sandbox from each other. Programs of a zygote share one domain.
	Landlock int
	// OneID: the sandbox has only one id, which the program gets whatever User says. User
	// only decides about the capabilities.
	OneID bool
	// NNP: an exec gives no rights (PR_SET_NO_NEW_PRIVS): sudo does not work.
	NNP bool
	// Tasks opens the files "tasks" of the sandbox's groups in cgroups v1. Start closes them.
	// Nil: there are none.
	Tasks func() ([]int, error)
	// Zygote of the sandbox; nil: none. All starts with one have the same PID1, Flags,
	// Caps, Filter, Landlock and NNP, and the same groups until it ends.
	Zygote *Zygote
}

// Zygote creates the children of most starts in one sandbox. It is a process that already
// has the namespaces, groups and rights of programs inside. The second start creates it,
// and it lives until End, or the death of this process. Starts that it cannot do are done
// without it.
type Zygote struct {
	// Shared returns the memory that contains PIDAt, SessionAt, FailedAt, Inner and Digits of
	// starts, and its file. It is always the same.
	Shared func() (memory []byte, fd int)
	// Group opens the cgroup v2 directory of the process.
	Group func() (int, error)
	// Filter returns the filter of programs, which also allows clone3(2) if its last three
	// arguments, which the kernel ignores, are this key.
	Filter func(seccomp.Key) (seccomp.Filter, error)
	// ResetOOM: programs have OOM score 0, whatever the parent has.
	ResetOOM bool

	state
}

// Digits is a decimal number. The length is stored last.
type Digits struct {
	length uint32
	text   [8]byte
}

// Number returns it; 0: there is none.
func (d *Digits) Number() (n int) {
	for _, c := range d.text[:min(atomic.LoadUint32(&d.length), 8)] {
		if c < '0' || c > '9' {
			return 0
		}
		n = 10*n + int(c-'0')
	}
	return n
}
