//go:build linux && (amd64 || arm64)

package spawn

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// way is what a machine lacks for starts. What is missing costs some time, and sandboxes.
type way struct {
	// byClone: clone3(2) is refused, as by the filters of container engines, which cannot see
	// its flags. clone(2) makes the children: without a pidfd, not into a cgroup, and with the
	// parent's handlers of signals.
	byClone bool
	// keepsFiles: there is no close_range(2). Each child copies the whole table of descriptors,
	// and the exec closes them.
	keepsFiles bool
	// leads: CLONE_PARENT is refused. Programs lead their sessions.
	leads bool
}

const cloneClearSighand = 0x100000000

// findWay tries what the machine has.
func (s *Starter) findWay() (err error) {
	_, _, errno := unix.RawSyscall(unix.SYS_CLOSE_RANGE, math.MaxUint32, math.MaxUint32, 0)
	keepsFiles := errno != 0
	for _, w := range []way{{}, {byClone: true}, {byClone: true, leads: true}} {
		w.keepsFiles = keepsFiles
		s.way = w
		if err = s.try(); err == nil {
			return nil
		}
	}
	return err
}

// CanEnter returns why no program can be started inside a sandbox; nil: it can.
func (s *Starter) CanEnter() error {
	switch {
	case s.way.byClone || s.way.leads:
		return fmt.Errorf("%w: clone3(2), Linux 5.7, is refused; in a container, its filter of system calls does that", ErrUnsupported)
	case s.way.keepsFiles:
		return fmt.Errorf("%w: close_range(2), Linux 5.9", ErrUnsupported)
	}
	return nil
}

// try makes a child that makes the unusual calls and ends.
func (s *Starter) try() error {
	sc, err := s.emptyScript(usual)
	if err != nil {
		return err
	}
	defer s.give(sc)
	b := sc.birth(&Program{})
	sc.defaultSignals()
	program := &sc.page.clone
	if !b.leads {
		program = sc.lead(StepFork, -1, [3]uintptr{})
		program.flags |= unix.CLONE_VFORK | unix.CLONE_FILES
		sc.page.clone.tell(b.session)
	}
	program.tell(b.pid)
	if !s.way.keepsFiles {
		sc.call(unix.SYS_CLOSE_RANGE, 3, math.MaxUint32, unix.CLOSE_RANGE_UNSHARE)
	}
	const done = 42
	sc.call(unix.SYS_EXIT_GROUP, done)
	var pid int
	if b.leads {
		pid, err = sc.run(0, unix.SIGCHLD, -1)
	} else {
		program.flags |= unix.CLONE_PIDFD
		program.pidFD = uint64(uintptr(unsafe.Pointer(&sc.page.pidfd)))
		var pidfd int
		pid, pidfd, err = sc.runHelped(b, nil)
		closeAll(pidfd)
	}
	if err != nil {
		return err
	}
	status, err := collect(pid)
	if f := sc.failure(); err == nil && f != nil {
		err = f
	}
	if err == nil && (!status.Exited() || status.ExitStatus() != done) {
		err = fmt.Errorf("a child ended with %#x", int(status))
	}
	return err
}

// putFiles lends files to a place; nil: the child copies the whole table.
func (s *Starter) putFiles(files []int) *place {
	if s.way.keepsFiles {
		return nil
	}
	return s.places.put(files)
}

// defaultSignals has a child of clone(2) forget the handlers of its parent, whose stack they
// would use.
func (s *script) defaultSignals() {
	if !s.way.byClone {
		return
	}
	for signal := range uintptr(64) {
		s.call(unix.SYS_RT_SIGACTION, signal+1, s.at(unsafe.Pointer(&s.page.action)), 0, 8).allow(true) // SIGKILL has none
	}
}

// seal completes the calls that make children.
func (s *script) seal() {
	p := s.page
	if !s.way.byClone {
		p.first = p.clone.new()
		return
	}
	p.first = p.clone.old()
	for i := range p.calls[:s.n] {
		if c := &p.calls[i]; c.flags&forks != 0 {
			*c = p.program.old()
			c.flags = forks
		}
	}
}

// new is the clone3(2) of the arguments.
func (c *cloneArgs) new() call {
	return call{nr: unix.SYS_CLONE3, args: [6]uintptr{uintptr(unsafe.Pointer(c)), unsafe.Sizeof(*c)}}
}

// old is the clone(2) of the arguments, as far as it has them. Only the order of those that are
// 0 here depends on the processor.
func (c *cloneArgs) old() call {
	flags := c.flags &^ (cloneClearSighand | unix.CLONE_PIDFD)
	return call{nr: unix.SYS_CLONE, args: [6]uintptr{uintptr(flags | c.exitSignal), 0, uintptr(c.parentTID)}}
}
