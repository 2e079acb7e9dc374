//go:build linux && (amd64 || arm64)

package spawn

import (
	"errors"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/nap"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// byZygote is Start by a zygote, or errOtherWay.
func (s *Starter) byZygote(p *Program, files []int) (pid, pidfd int, err error) {
	z := p.Enter.Zygote
	if z == nil || !z.suits(p) {
		return 0, -1, errOtherWay
	}
	if cap(s.places.free) > 0 { // as many at once as the other way
		pl := s.places.acquire()
		if pl == nil {
			return 0, -1, errOtherWay
		}
		defer func() { s.places.free <- pl }()
	}
	r := z.hold(s, p.Enter)
	if r == nil {
		return 0, -1, errOtherWay
	}
	defer z.letGo(r)
	var sc *script
	select {
	case sc = <-r.scripts:
	default:
		return 0, -1, errOtherWay
	}
	defer func() {
		sc.program = nil
		r.scripts <- sc
	}()
	sc.reset()
	sc.program = p
	sc.page.mask = r.mask
	b := sc.birth(p)
	// There is no descriptor of it yet, and what runs already cannot be taken back.
	room, err := unix.FcntlInt(uintptr(files[0]), unix.F_DUPFD_CLOEXEC, placeFiles)
	if err != nil {
		return 0, -1, err
	}
	sc.born(z, r, p, b, s.limitOfFiles(p))
	err = r.send(sc, append(files[:placeFiles:placeFiles], p.Group, s.proc), sc.at(unsafe.Pointer(&sc.page.clone)))
	if err == nil {
		err = z.await(r, sc, b)
	} else {
		if err == unix.EPIPE || err == unix.ECONNRESET { // it was killed
			z.drop(r)
		}
		err = errOtherWay
	}
	unix.Close(room)
	if err != nil {
		_, failed := errors.AsType[*Failure](err)
		switch {
		case p.FailedAt == nil:
		case failed:
			atomic.StoreUint32(p.FailedAt, 1)
		case err == errOtherWay: // a child may have written its failure there
			atomic.StoreUint32(p.FailedAt, 0)
		}
		return 0, -1, err
	}
	pid = b.number()
	atomic.StoreUint32(b.pid, uint32(pid))
	return sc.opened(pid)
}

// Where a zygote's child finds what was sent beside its files.
const (
	sentGroup = placeFiles + iota + placeFiles
	sentProc
)

// born writes the list of a zygote's child: what the zygote has not done for it.
func (s *script) born(z *Zygote, r *running, p *Program, b *birth, nofile *unix.Rlimit) {
	where := func(p *uint32) uint64 {
		if there := z.shared(p); there != 0 {
			return uint64(there)
		}
		return uint64(s.at(unsafe.Pointer(p)))
	}
	program := &s.page.clone
	if b.leads {
		inner := s.call(unix.SYS_GETPID)
		inner.to, inner.flags = uintptr(where(b.inner)), narrow
		*program = cloneArgs{
			flags:     unix.CLONE_VM | unix.CLONE_PARENT | unix.CLONE_PARENT_SETTID | unix.CLONE_INTO_CGROUP,
			parentTID: where(b.pid), cgroup: sentGroup,
		}
	} else {
		s.page.clone = cloneArgs{flags: unix.CLONE_VM | unix.CLONE_PARENT | unix.CLONE_PARENT_SETTID, parentTID: where(b.session)}
		program = s.lead(StepEnter, sentGroup, r.key)
		program.flags |= unix.CLONE_FILES // the stub only ends
		program.parentTID = where(b.inner)
		s.sayPID(sentProc, uintptr(where((*uint32)(unsafe.Pointer(b.digits)))))
	}
	program.flags |= unix.CLONE_CHILD_CLEARTID
	program.childTID = uint64(s.at(unsafe.Pointer(&s.page.order.unborn)))
	s.become(p, []int{placeFiles, placeFiles + 1, placeFiles + 2}, nofile)
	if p.FailedAt != nil {
		s.page.outcome.note = uintptr(where(p.FailedAt))
	}
}

// look is how often a start looks whether its zygote lives.
const look = 20 * time.Millisecond

// await waits until the child has executed its program, or has ended: of the latter it
// returns the reason, if the child knew one, and has collected it. errOtherWay: no program
// was executed, and none will be.
func (z *Zygote) await(r *running, sc *script, b *birth) error {
	unborn := &sc.page.order.unborn
	slow := false
	for end := time.Now().Add(enterWait); atomic.LoadUint32(unborn) != 0; {
		wait := unix.NsecToTimespec(look.Nanoseconds())
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(unborn)), futexWait, 1, uintptr(unsafe.Pointer(&wait)), 0, 0)
		if atomic.LoadUint32(unborn) == 0 {
			break
		}
		if pidfd.Ended(r.pidfd, 0) { // then the kernel tells nobody of the child
			if err := bury(b, end); err != nil {
				z.drop(r)
				b.buryStub()
				return err
			}
			break
		}
		if stub := b.stub(); stub != 0 && !b.made() && !procfs.Runs(stub) && !b.made() {
			b.buryStub()
			if f := sc.failure(); f != nil {
				return z.refused(r, f.Errno)
			}
			if slow {
				return ErrSlow
			}
			return errOtherWay
		}
		if !time.Now().Before(end) {
			slow = true
			if pid := b.number(); pid != 0 {
				unix.Kill(pid, unix.SIGKILL)
			} else if stub := b.stub(); stub != 0 && !b.made() {
				unix.Kill(stub, unix.SIGKILL)
			} else {
				unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
			}
		}
	}
	if errno := unix.Errno(sc.page.order.errno); errno != 0 {
		return z.refused(r, errno)
	}
	b.buryStub()
	pid := b.number()
	if pid == 0 {
		if pid = b.find(); pid != 0 { // it was killed before its first call
			collect(pid)
		}
		return errOtherWay
	}
	if f := sc.failure(); f != nil {
		collect(pid)
		return f
	}
	if slow {
		unix.Kill(pid, unix.SIGKILL)
		collect(pid)
		return ErrSlow
	}
	return nil
}

// refused is for a clone that the kernel has refused.
func (z *Zygote) refused(r *running, errno unix.Errno) error {
	if errno == unix.ENOENT {
		// The group is not below those that the sandbox sees, which the kernel takes
		// for a border: a sandbox that was made by a former version.
		z.forget(r)
		return errOtherWay
	}
	return &Failure{Step: StepEnter, Errno: errno}
}

const futexWait = 0 // FUTEX_WAIT

// forget makes no zygote any more.
func (z *Zygote) forget(r *running) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropHeld(r)
	z.skip = math.MaxInt
}

// bury finds out what became of a child whose zygote was killed: nil, it has executed its
// program. It kills one that has not by the end.
func bury(b *birth, end time.Time) error {
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		pid := b.find()
		if pid == 0 {
			stub := b.stub()
			if !b.made() && (stub == 0 || !procfs.Runs(stub)) && !b.made() {
				return errOtherWay
			}
			if !time.Now().Before(end) {
				if !b.made() {
					unix.Kill(stub, unix.SIGKILL)
					continue
				}
				return errOtherWay // it is no child of ours any more
			}
			nap.For(pause)
			continue
		}
		stat, ok := procfs.ReadStat(pid)
		if ok && !stat.NoExec {
			return nil
		}
		if !ok || stat.Dead() {
			collect(pid)
			atomic.StoreUint32(b.pid, b.was)
			return errOtherWay
		}
		if !time.Now().Before(end) {
			unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(pause)
	}
}

// pidfdWait bounds how long a start waits for a descriptor: others under way give theirs back.
const pidfdWait = time.Second

// pidfdOf opens a child of this process that nobody else collects.
func pidfdOf(pid int) (int, error) {
	for end := time.Now().Add(pidfdWait); ; time.Sleep(time.Millisecond) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil || err == unix.ESRCH || !time.Now().Before(end) {
			return fd, err
		}
	}
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
