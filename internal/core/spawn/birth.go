//go:build linux && (amd64 || arm64)

package spawn

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// birth is where kernel and child write down what is made in a start.
type birth struct {
	pid, session, inner *uint32
	digits              *Digits
	leads               bool   // the program leads its session, so there is no stub
	inside              bool   // the program has a pid inside, which is another one
	was                 uint32 // in pid, before
}

// birth returns the places of p, and clears them. Nobody else has seen them yet.
func (s *script) birth(p *Program) *birth {
	b := &birth{pid: p.PIDAt, session: p.SessionAt, inner: &s.page.inner, digits: &s.page.digits, leads: p.Terminal ||
		s.way.leads, inside: p.Enter != nil}
	if b.pid == nil {
		b.pid = &s.page.pid
	}
	if b.session == nil {
		b.session = &s.page.session
	}
	if p.Enter != nil {
		if p.Enter.Inner != nil {
			b.inner = p.Enter.Inner
		}
		if p.Enter.Digits != nil {
			b.digits = p.Enter.Digits
		}
	}
	b.was = atomic.LoadUint32(b.pid)
	atomic.StoreUint32(b.session, 0)
	atomic.StoreUint32(b.inner, 0)
	atomic.StoreUint32(&b.digits.length, 0)
	return b
}

// made reports whether the program's process was made.
func (b *birth) made() bool {
	if b.inside && !b.leads {
		return atomic.LoadUint32(b.inner) != 0
	}
	return atomic.LoadUint32(b.pid) != b.was
}

// number is the program's pid; 0: it is not known.
func (b *birth) number() int {
	switch {
	case !b.made():
		return 0
	case b.inside && !b.leads:
		return b.digits.Number()
	}
	return int(atomic.LoadUint32(b.pid))
}

// stub is its pid; 0: there is none yet.
func (b *birth) stub() int { return int(atomic.LoadUint32(b.session)) }

// buryStub ends and collects the stub. A program inside may have stopped it.
func (b *birth) buryStub() {
	if pid := b.stub(); pid != 0 {
		unix.Kill(pid, unix.SIGKILL)
		collect(pid)
	}
}

// find is the program's pid if it was killed before it could say so: it is a child of ours.
func (b *birth) find() int {
	if pid := b.number(); pid != 0 {
		return pid
	}
	if !b.made() {
		return 0
	}
	inner := int(atomic.LoadUint32(b.inner))
	for _, pid := range procfs.Children(os.Getpid()) {
		if stat, ok := procfs.ReadStat(pid); ok && stat.NoExec && procfs.InnerPID(pid) == inner {
			return pid
		}
	}
	return 0
}

// lead appends what a stub does: it leads a session, and makes the program in it. at is the
// step. key lets the clone3 through a filter. group is the open cgroup v2 directory of the program; -1: the
// stub's. The arguments may be completed until the start.
func (s *script) lead(at Step, group int, key [3]uintptr) *cloneArgs {
	s.step = step{Step: at}
	s.call(unix.SYS_SETSID)
	args := &s.page.program
	s.fork(args, key)
	*args = cloneArgs{flags: unix.CLONE_VM | unix.CLONE_PARENT | unix.CLONE_PARENT_SETTID}
	args.into(group)
	s.step = step{}
	return args
}

// fork appends a clone3 whose caller ends, and whose child continues.
func (s *script) fork(args *cloneArgs, key [3]uintptr) {
	s.call(unix.SYS_CLONE3, s.at(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0, key[0], key[1], key[2]).flags = forks
}

// sayPID appends what writes down the digits, which the child has at that address. proc is
// the parent's /proc.
func (s *script) sayPID(proc int, digits uintptr) {
	var d Digits
	s.step = step{Step: StepEnter}
	c := s.call(unix.SYS_READLINKAT, uintptr(proc), s.text("self"), digits+unsafe.Offsetof(d.text), unsafe.Sizeof(d.text))
	c.to, c.flags = digits+unsafe.Offsetof(d.length), narrow
	s.step = step{}
}
