//go:build linux && (amd64 || arm64)

package spawn

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/gomonitor"
	"github.com/tend-run/tend/internal/lib/nap"
	"github.com/tend-run/tend/internal/lib/procfs"
)

//go:noescape
func clone(first, calls *call, out *outcome) (pid, errno uintptr)

// Starter starts programs, several at once.
type Starter struct {
	scripts chan *script // at rest
	places  *places
	inside  func() inside // called at the first start inside
	nofile  *unix.Rlimit  // the limit of descriptors that programs get; nil: the parent's
	proc    int           // /proc, open
	way     way
}

// New finds out how scripts work here. null is an open /dev/null, which must stay open.
// Call it once, while few descriptors are open and before any other code opens files or
// forks.
func New(null int) (*Starter, error) {
	s := &Starter{scripts: make(chan *script, 2*mostPlaces), places: &places{}, inside: sync.OnceValue(findInside), proc: -1}
	if err := s.findWay(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	s.nofile = undoRaise()
	s.places = newPlaces(null)
	var err error
	if s.proc, err = unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("/proc: %w", err)
	}
	return s, nil
}

// Start starts a program. When it returns, the program was executed, or an error says why
// not: a *[Failure] of the child, or an errno, as from syscall.ForkExec. pidfd is
// close-on-exec.
func (s *Starter) Start(p *Program) (pid, pidfd int, err error) {
	if p.OOM == nil || *p.OOM == 0 || !closed(p) {
		return s.start(p)
	}
	q := *p
	q.OOM = nil
	if pid, pidfd, err = s.start(&q); err != nil {
		return 0, -1, err
	}
	err = procfs.SetOOMScore(pid, *p.OOM)
	if err == nil || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) { // it may have ended
		return pid, pidfd, nil
	}
	unix.Kill(pid, unix.SIGKILL)
	unix.Close(pidfd)
	collect(pid)
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		errno = unix.EACCES
	}
	return 0, -1, &Failure{Step: StepOOM, Errno: errno}
}

// closed reports whether the files of a child in /proc are root's, and the parent is not
// root: it has the parent's memory, which is not dumpable once something was started
// inside a sandbox. Then the parent sets the OOM score, when the program has its own memory.
func closed(p *Program) bool {
	if os.Geteuid() == 0 {
		return false
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return p.Enter != nil || err == nil && dumpable != 1
}

// mostUnmade bounds how often a start is tried whose children are killed: programs inside a
// sandbox may kill whatever they see.
const mostUnmade = 50

func (s *Starter) start(p *Program) (pid, pidfd int, err error) {
	for range mostUnmade {
		if pid, pidfd, err = s.startOnce(p); !errors.Is(err, errUnmade) {
			break
		}
	}
	return pid, pidfd, err
}

func (s *Starter) startOnce(p *Program) (pid, pidfd int, err error) {
	if hasNull(p) || len(p.Argv) == 0 || len(p.Limits) > maxLimits || len(p.Tasks)+len(p.Own) > maxTasks || p.Enter != nil && p.User == nil {
		return 0, -1, unix.EINVAL
	}
	sc, err := s.emptyScript(sizeOf(p))
	if err != nil {
		return 0, -1, err
	}
	defer s.give(sc)
	sc.program = p
	files := slices.Clone(p.Files)
	for i, fd := range files {
		if fd > i {
			continue
		}
		// It would be replaced, or has its number already, and stay close-on-exec.
		if files[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, len(files)); err != nil {
			return 0, -1, err
		}
		defer unix.Close(files[i])
	}
	if p.Enter != nil {
		return s.startInside(sc, p, files)
	}
	b := sc.birth(p)
	sc.defaultSignals()
	program := &sc.page.clone
	if !b.leads {
		program = sc.lead(StepFork, p.Group, [3]uintptr{})
		program.flags |= unix.CLONE_VFORK | unix.CLONE_PIDFD
		program.pidFD = uint64(uintptr(unsafe.Pointer(&sc.page.pidfd)))
		sc.page.clone.tell(b.session)
	}
	program.tell(b.pid)
	sc.join(p.Tasks)
	sc.join(p.Own)
	if pl := s.putFiles(files); pl != nil {
		defer s.places.clear(pl)
		files = pl[:len(files)]
		program.flags |= unix.CLONE_FILES
		sc.call(unix.SYS_CLOSE_RANGE, uintptr(s.places.end), math.MaxUint32, unix.CLOSE_RANGE_UNSHARE)
	}
	sc.privileged(p)
	sc.become(p, files, s.limitOfFiles(p))
	sc.note(p)
	if !b.leads {
		return sc.runHelped(b, nil)
	}
	pid, err = sc.run(unix.CLONE_PIDFD, unix.SIGCHLD, p.Group)
	if err != nil {
		return 0, -1, err
	}
	if f := sc.failure(); f != nil {
		closeAll(int(sc.page.pidfd))
		collect(pid)
		return 0, -1, f
	}
	return sc.opened(pid)
}

// opened returns a pidfd of the program, which the kernel gave at the clone if it could.
func (s *script) opened(pid int) (_, pidfd int, err error) {
	if pidfd = int(s.page.pidfd); pidfd >= 0 {
		return pid, pidfd, nil
	}
	if pidfd, err = pidfdOf(pid); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		collect(pid)
		// No want of descriptors, for which a start is tried again: the program has run.
		return 0, -1, &Failure{Step: StepFiles, Errno: unix.EAGAIN}
	}
	return pid, pidfd, nil
}

// runHelped runs the children up to the program, and collects all but that one. score is
// where the number of a descriptor is that the first child opened and did not close; nil:
// it opened none.
func (s *script) runHelped(b *birth, score *uintptr) (pid, pidfd int, err error) {
	// The first one shares the table of descriptors to its end, as the stub does: what they
	// open, the program's pidfd too, is the parent's. Their ends are told by no signal.
	first, err := s.run(unix.CLONE_FILES, 0, -1)
	if err != nil {
		return 0, -1, err
	}
	if score != nil && *score != none {
		unix.Close(int(*score))
	}
	status, err := collect(first)
	if stub := b.stub(); stub != 0 && stub != first {
		if err == nil && status == 0 { // so the stub leaves, by itself or killed
			status, err = collect(stub)
		} else {
			b.buryStub()
		}
	}
	if status != 0 && b.made() {
		pid = s.settle(b)
	} else {
		pid = b.number()
	}
	f := s.failure()
	if f == nil && pid != 0 {
		return s.opened(pid)
	}
	if pid != 0 {
		collect(pid)
		closeAll(int(s.page.pidfd))
	}
	switch {
	case f != nil && f.Step == StepFork:
		return 0, -1, f.Errno
	case f != nil:
		return 0, -1, f
	case err == nil:
		err = fmt.Errorf("%w: it ended with %#x", errUnmade, int(status))
	}
	return 0, -1, err
}

// errUnmade: somebody killed a child before it made the program's process, of which there is
// nothing.
var errUnmade = fmt.Errorf("each child that was to make the program's process was killed: %w", syscall.EINTR)

// settle waits for the program's process after somebody has killed a child before it: the
// process is on its way still, and makes the calls of this script. settle returns when the
// process has executed its program or has ended.
func (s *script) settle(b *birth) (pid int) {
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		if pid = b.find(); pid != 0 {
			if stat, ok := procfs.ReadStat(pid); !ok || stat.Dead() || !stat.NoExec {
				return pid
			}
		}
		nap.For(pause)
	}
}

// run clones the first child, whose end is told by a signal. It returns when that shares the
// memory no more: it has executed its program, or has ended.
func (s *script) run(flags int, signal syscall.Signal, group int) (pid int, err error) {
	p := s.page
	// A child of CLONE_VM without CLONE_VFORK would have the kernel give its OOM score
	// to us, too, when it is set around the exec.
	p.clone.flags |= uint64(flags) | unix.CLONE_VM | unix.CLONE_VFORK | cloneClearSighand
	p.clone.exitSignal = uint64(signal)
	p.clone.pidFD = uint64(uintptr(unsafe.Pointer(&p.pidfd)))
	p.clone.into(group)
	s.seal()
	pid, errno := child(&p.first, &p.calls[0], &p.outcome, &p.mask)
	if errno != 0 {
		return 0, errno
	}
	return pid, nil
}

// child clones a child that makes the calls, and waits until it shares the memory no more.
// mask receives the signals that the caller has blocked. All of it lies outside of Go's heap.
func child(first, calls *call, out *outcome, mask *uint64) (pid int, errno syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gomonitor.Thread()
	// A handler would run on the parent's stack.
	all := ^uint64(0)
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(mask)), 8, 0, 0)
	r, e := block(first, calls, out)
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)), 0, 8, 0, 0)
	return int(r), syscall.Errno(e)
}

// block is clone as a system call that blocks: Go's runtime continues without this thread,
// as it does for those that package syscall makes.
//
//go:nosplit
//go:norace
func block(first, calls *call, out *outcome) (pid, errno uintptr) {
	entersyscall()
	pid, errno = clone(first, calls, out)
	exitsyscall()
	return pid, errno
}

// The runtime exports both for this use; see its comments there.

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

func collect(pid int) (unix.WaitStatus, error) {
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != unix.EINTR {
			return status, err
		}
	}
}

// emptyScript returns an empty script with room for size bytes.
func (s *Starter) emptyScript(size int) (sc *script, err error) {
	if size > usual {
		sc, err = newScript(size)
	} else {
		select {
		case sc = <-s.scripts:
		default:
			sc, err = newScript(usual)
		}
	}
	if err == nil {
		sc.way = s.way
		sc.reset()
	}
	return sc, err
}

func (s *Starter) give(sc *script) {
	sc.program = nil
	if len(sc.mem) == usual {
		select {
		case s.scripts <- sc:
			return
		default:
		}
	}
	sc.free()
}
