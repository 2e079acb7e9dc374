//go:build linux && (amd64 || arm64)

package spawn

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// enterWait bounds how long a child takes to its program inside. Programs inside see the
// child, and may stop it.
const enterWait = 10 * time.Second

// ErrSlow: a child inside did not execute its program in time.
var ErrSlow = fmt.Errorf("the start took longer than %v: a program in the sandbox, or a filesystem, held it up", enterWait)

// ErrDumpable: the kernel would let programs inside read the parent's memory.
var ErrDumpable = errors.New("fs.suid_dumpable is 1: programs in a sandbox could read the memory of tend; set it to 0 or 2 (sysctl -w fs.suid_dumpable=0)")

// inside is what starts inside need of the machine, found out at the first.
type inside struct {
	dumpable int // /proc/sys/fs/suid_dumpable, open; -1: it cannot be read
	caps     int // capabilities that the kernel knows
}

func findInside() inside {
	in := inside{dumpable: -1}
	in.dumpable, _ = unix.Open("/proc/sys/fs/suid_dumpable", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for in.caps < 64 {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(in.caps), 0, 0, 0); err != nil {
			break
		}
		in.caps++
	}
	return in
}

// shut keeps all that are inside out of this process's memory.
func (in *inside) shut() error {
	var b [1]byte
	if n, _ := unix.Pread(in.dumpable, b[:], 0); n == 1 && b[0] == '1' {
		return ErrDumpable
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	return nil
}

// startInside is Start for a program with Enter.
func (s *Starter) startInside(sc *script, p *Program, files []int) (pid, pidfd int, err error) {
	in := s.inside()
	if err := in.shut(); err != nil {
		return 0, -1, err
	}
	if pid, pidfd, err = s.byZygote(p, files); err != errOtherWay {
		return pid, pidfd, err
	}
	b := sc.birth(p)
	if p.Enter.Tasks != nil {
		tasks, err := p.Enter.Tasks()
		if err != nil {
			return 0, -1, err
		}
		defer closeAll(tasks...)
		sc.join(tasks)
	}
	sc.join(p.Tasks)
	score := sc.privileged(p)
	sc.step = step{Step: StepEnter}
	last := p.Enter.last()
	sc.call(unix.SYS_SETNS, uintptr(p.Enter.PID1), uintptr(p.Enter.Flags&^last))
	next := &sc.page.next
	*next = cloneArgs{flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PARENT}
	sc.fork(next, [3]uintptr{})
	program := next
	if b.leads {
		next.tell(b.pid)
		next.flags |= unix.CLONE_CHILD_SETTID
		next.childTID = uint64(uintptr(unsafe.Pointer(b.inner)))
		next.into(p.Group)
	} else {
		next.flags |= unix.CLONE_FILES
		next.tell(b.session)
		program = sc.lead(StepEnter, p.Group, [3]uintptr{})
		program.flags |= unix.CLONE_VFORK
		program.tell(b.inner)
		sc.sayPID(s.proc, uintptr(unsafe.Pointer(b.digits)))
	}
	program.flags |= unix.CLONE_PIDFD
	program.pidFD = uint64(uintptr(unsafe.Pointer(&sc.page.pidfd)))
	sc.step = step{Step: StepEnter}
	if last != 0 {
		sc.call(unix.SYS_SETNS, uintptr(p.Enter.PID1), uintptr(last))
	}
	sc.join(p.Own)
	sc.restrict(p.Enter)
	pl := s.places.put(files)
	if pl != nil {
		defer s.places.clear(pl)
		files = pl[:len(files)]
		program.flags |= unix.CLONE_FILES
		sc.step = step{}
		sc.call(unix.SYS_CLOSE_RANGE, uintptr(s.places.end), math.MaxUint32, unix.CLOSE_RANGE_UNSHARE)
	}
	sc.harden(p.Enter, in.caps)
	sc.become(p, files, s.limitOfFiles(p))
	sc.note(p)
	return sc.runInside(b, score)
}

// last are the namespaces that the program's process itself enters. From that of cgroups the group
// to be cloned into may not be seen. The stub has to be in that of pids, and not in that of
// users: root outside is nobody's there, so no program inside may kill the stub before it has made
// the program's process, or stop it. Where all is one id, that helps nobody.
func (e *Enter) last() int {
	last := unix.CLONE_NEWCGROUP
	if os.Geteuid() == 0 && !e.OneID && Admin() {
		last |= unix.CLONE_NEWUSER
	}
	return e.Flags & last
}

// runInside is runHelped in limited time.
func (s *script) runInside(b *birth, score *uintptr) (pid, pidfd int, err error) {
	inTime := s.bound(b)
	pid, pidfd, err = s.runHelped(b, score)
	if !inTime() {
		if err == nil { // it may have come to its program at that moment, or not
			unix.Kill(pid, unix.SIGKILL)
			collect(pid)
			unix.Close(pidfd)
		}
		return 0, -1, ErrSlow
	}
	if err == nil {
		atomic.StoreUint32(b.pid, uint32(pid))
	}
	return pid, pidfd, err
}

// bound kills the children inside if they take too long. It is for the first, too, which
// waits for them. inTime ends the wait, and is false if they were killed.
func (s *script) bound(b *birth) (inTime func() bool) {
	over, killed := make(chan struct{}), make(chan struct{})
	timer := time.AfterFunc(enterWait, func() {
		defer close(killed)
		for !b.made() { // the kernel sets the pidfd first
			if stub := b.stub(); stub != 0 { // it is not collected before over
				unix.Kill(stub, unix.SIGKILL)
			}
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		unix.PidfdSendSignal(int(atomic.LoadInt32(&s.page.pidfd)), unix.SIGKILL, nil, 0)
		if stub := b.stub(); stub != 0 { // a program inside may have stopped it
			unix.Kill(stub, unix.SIGKILL)
		}
	})
	return func() bool {
		if timer.Stop() {
			return true
		}
		close(over)
		<-killed
		return false
	}
}

// restrict appends what takes no privilege and uses descriptors of the parent's.
func (s *script) restrict(e *Enter) {
	s.step = step{Step: StepHarden}
	if e.NNP {
		s.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if e.Landlock > 0 {
		s.call(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(e.Landlock), 0)
	}
}

// harden appends what takes the privileges inside, all before the child gives them up.
func (s *script) harden(e *Enter, caps int) {
	s.step = step{Step: StepHarden}
	for c := range caps {
		if e.Caps&(1<<c) == 0 {
			s.call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
	}
	if len(e.Filter) > 0 {
		size := len(e.Filter) * int(unsafe.Sizeof(e.Filter[0]))
		b := s.room(size)
		copy(b, unsafe.Slice((*byte)(unsafe.Pointer(&e.Filter[0])), size))
		s.page.filter.length, s.page.filter.at = uintptr(len(e.Filter)), s.address(b)
		s.call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, s.at(unsafe.Pointer(&s.page.filter)))
	}
	s.step = step{}
}

// capabilities leaves the child those that it is to have, before it looks for its directory
// and its program: a change from a user that is unknown inside takes none away.
func (s *script) capabilities(e *Enter, u *User) {
	keep := e.Caps
	if u == nil || u.UID != 0 {
		keep = 0
	}
	p := s.page
	p.capHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	for i := range p.caps {
		word := uint32(keep >> (32 * i))
		p.caps[i] = unix.CapUserData{Effective: word, Permitted: word}
	}
	s.step = step{Step: StepHarden}
	s.call(unix.SYS_CAPSET, s.at(unsafe.Pointer(&p.capHeader)), s.at(unsafe.Pointer(&p.caps)))
}
