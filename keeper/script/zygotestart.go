//go:build linux && (amd64 || arm64)

package script

import (
	"errors"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/procfs"
)

// byZygote is Start by a zygote, or errOtherWay.
func (s *Starter) byZygote(p *Program, files []int) (pid, pidfd int, err error) {
	z := p.Enter.Zygote
	if z == nil || !z.suits(p) {
		return 0, -1, errOtherWay
	}
	if cap(s.places.free) > 0 { // as many at once as the other way
		pl := s.places.take()
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
	at := p.PIDAt
	if at == nil {
		at = &sc.page.pid
	}
	// There is no descriptor of it yet, and what runs already cannot be taken back.
	room, err := unix.FcntlInt(uintptr(files[0]), unix.F_DUPFD_CLOEXEC, placeFiles)
	if err != nil {
		return 0, -1, err
	}
	sc.born(z, p, at, s.limitOfFiles(p))
	was := atomic.LoadUint32(at)
	err = r.send(sc, append(files[:placeFiles:placeFiles], p.Group), sc.at(unsafe.Pointer(&sc.page.clone)))
	if err == nil {
		err = z.await(r, sc, at, was)
	} else {
		if err == unix.EPIPE || err == unix.ECONNRESET { // it was killed
			z.drop(r)
		}
		err = errOtherWay
	}
	unix.Close(room)
	if err != nil {
		if _, failed := errors.AsType[*Failure](err); failed && p.FailedAt != nil {
			atomic.StoreUint32(p.FailedAt, 1)
		}
		return 0, -1, err
	}
	pid = int(atomic.LoadUint32(at))
	pidfd, err = pidfdOf(pid)
	if err != nil {
		unix.Kill(pid, unix.SIGKILL)
		collect(pid)
		// No want of descriptors, for which a start is tried again: the program has run.
		return 0, -1, &Failure{Step: StepFiles, Errno: unix.EAGAIN}
	}
	return pid, pidfd, nil
}

// born writes the list of a zygote's child: what the zygote has not done for it.
func (s *script) born(z *Zygote, p *Program, at *uint32, nofile *unix.Rlimit) {
	where := func(p *uint32) uintptr {
		if there := z.shared(p); there != 0 {
			return there
		}
		return s.at(unsafe.Pointer(p))
	}
	inner := s.call(unix.SYS_GETPID)
	if p.Enter.Inner != nil {
		inner.to, inner.flags = where(p.Enter.Inner), narrow
	}
	s.become(p, []int{placeFiles, placeFiles + 1, placeFiles + 2}, nofile)
	if p.FailedAt != nil {
		s.page.outcome.note = where(p.FailedAt)
	}
	s.page.clone = cloneArgs{
		flags:     unix.CLONE_VM | unix.CLONE_PARENT | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID | unix.CLONE_INTO_CGROUP,
		childTID:  uint64(s.at(unsafe.Pointer(&s.page.order.unborn))),
		parentTID: uint64(where(at)),
		cgroup:    placeFiles + 3,
	}
}

// look is how often a start looks whether its zygote lives.
const look = 20 * time.Millisecond

// await waits until the child has executed its program, or has ended: of the latter it
// returns the reason, if the child knew one, and has collected it. errOtherWay: no program
// was executed, and none will be.
func (z *Zygote) await(r *running, sc *script, at *uint32, was uint32) error {
	unborn := &sc.page.order.unborn
	slow := false
	for end := time.Now().Add(enterWait); atomic.LoadUint32(unborn) != 0; {
		wait := unix.NsecToTimespec(look.Nanoseconds())
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(unborn)), futexWait, 1, uintptr(unsafe.Pointer(&wait)), 0, 0)
		if atomic.LoadUint32(unborn) == 0 {
			break
		}
		if r.dead() { // then the kernel tells nobody of the child
			if err := bury(at, was, end); err != nil {
				z.drop(r)
				return err
			}
			break
		}
		if !time.Now().Before(end) {
			slow = true
			if now := atomic.LoadUint32(at); now != was {
				unix.Kill(int(now), unix.SIGKILL)
			} else {
				unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
			}
		}
	}
	if errno := unix.Errno(sc.page.order.errno); errno != 0 {
		if errno == unix.ENOENT {
			// The group is not below those that the sandbox sees, which the kernel takes
			// for a border: a sandbox that was made by a former version.
			z.forget(r)
			return errOtherWay
		}
		return &Failure{Step: StepEnter, Errno: errno}
	}
	pid := int(atomic.LoadUint32(at))
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
func bury(at *uint32, was uint32, end time.Time) error {
	now := atomic.LoadUint32(at)
	if now == was {
		return errOtherWay
	}
	pid := int(now)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		stat, ok := procfs.ReadStat(pid)
		if ok && !stat.NoExec {
			return nil
		}
		if !ok || stat.Dead() {
			collect(pid)
			atomic.StoreUint32(at, was)
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
