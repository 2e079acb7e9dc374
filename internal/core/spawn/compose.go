//go:build linux && (amd64 || arm64)

package spawn

import (
	"math"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is done until the program, in this order: lead, by the stub; join, its own table of
// descriptors, privileged, become. Inside a sandbox a child before the stub does a part of
// it; see inside.go.

// join makes the child a member of cgroups v1. It writes to the parent's descriptors, so
// it comes before the copy of the table, which has no place for them.
func (s *script) join(tasks []int) {
	if len(tasks) == 0 {
		return
	}
	s.step = step{Step: StepTasks}
	self := s.text("0")
	for _, fd := range tasks {
		s.call(unix.SYS_WRITE, uintptr(fd), self, 1)
	}
	s.step = step{}
}

// privileged appends what takes the parent's rights. score is where the number of a
// descriptor will be that the child opens and does not close; nil: it opens none.
func (s *script) privileged(p *Program) (score *uintptr) {
	if p.Nice != 0 {
		s.step = step{Step: StepNice}
		s.call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(p.Nice))
	}
	if p.OOM != nil {
		score = s.oomScore(*p.OOM)
	}
	for i, l := range p.Limits {
		if now, above := raises(l); above {
			s.step = step{StepLimit, uint8(i)}
			s.page.raises[i] = unix.Rlimit{Cur: now.Cur, Max: l.Hard}
			s.limit(l.Resource, &s.page.raises[i]).allow(l.Try)
		}
	}
	s.step = step{}
	if p.Enter != nil {
		s.noCores()
	}
	return score
}

// noCores has the kernel start no handler of core dumps, outside and as root, for a crash
// inside: with a limit of 1 byte it does not, with 0 it does. It may have no right to raise a
// limit of 0.
func (s *script) noCores() {
	s.page.core = unix.Rlimit{Cur: 1, Max: 1}
	s.limit(unix.RLIMIT_CORE, &s.page.core).allow(true)
}

// raises reports whether a limit is above that of the parent.
func raises(l Limit) (now unix.Rlimit, above bool) {
	err := unix.Prlimit(0, l.Resource, nil, &now)
	return now, err == nil && l.Hard > now.Max
}

// oomScore sets the child's score. The parent, whose memory it shares, keeps its own: for
// the kernel a child of vfork(2) has another one already.
func (s *script) oomScore(score int) (fd *uintptr) {
	s.step = step{Step: StepOOM}
	text := strconv.Itoa(score)
	open := s.call(unix.SYS_OPENAT, Here, s.text("/proc/self/oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC)
	write := s.call(unix.SYS_WRITE, none, s.text(text), uintptr(len(text)))
	open.to = s.at(unsafe.Pointer(&write.args[0]))
	open.allow(score == 0)
	write.allow(score == 0)
	return &write.args[0]
}

// Arguments that are negative.
const (
	Here = ^uintptr(-unix.AT_FDCWD - 1) // the working directory
	none = ^uintptr(0)                  // no descriptor
)

// allow lets the call fail.
func (c *call) allow(failure bool) {
	if failure {
		c.flags |= may
	}
}

// become appends all that makes the child the program. files become 0, 1, 2 … in this
// order; each has a number above that.
func (s *script) become(p *Program, files []int, nofile *unix.Rlimit) {
	if p.Terminal || s.way.leads {
		s.call(unix.SYS_SETSID)
	}
	if u := p.User; u != nil && (p.Enter == nil || !p.Enter.OneID) {
		s.step = step{Step: StepUser}
		s.call(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), s.numbers(u.Groups))
		s.call(unix.SYS_SETGID, uintptr(u.GID))
		s.call(unix.SYS_SETUID, uintptr(u.UID))
	}
	if p.Enter != nil {
		s.capabilities(p.Enter, p.User)
	}
	if p.Dir != "" {
		s.step = step{Step: StepDir}
		s.call(unix.SYS_CHDIR, s.text(p.Dir))
	}
	s.step = step{Step: StepFiles}
	for i, fd := range files {
		s.call(unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	if p.Terminal {
		s.step = step{Step: StepTerminal}
		s.call(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1)
	}
	s.step = step{Step: StepFiles}
	// They are all close-on-exec; but what other starts have lent must not stay open
	// while this one's program comes from a slow disk.
	if !s.way.keepsFiles {
		s.call(unix.SYS_CLOSE_RANGE, uintptr(len(files)), math.MaxUint32, 0)
	}
	if nofile != nil {
		s.page.nofile = *nofile
		s.limit(unix.RLIMIT_NOFILE, &s.page.nofile).allow(true)
	}
	for i, l := range p.Limits {
		s.step = step{StepLimit, uint8(i)}
		s.page.limits[i] = unix.Rlimit{Cur: l.Soft, Max: l.Hard}
		s.limit(l.Resource, &s.page.limits[i]).allow(l.Try)
	}
	s.step = step{Step: StepExec}
	path, argv, env := s.text(p.Path), s.texts(p.Argv), s.texts(p.Env)
	s.call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, s.at(unsafe.Pointer(&s.page.mask)), 0, 8)
	s.call(unix.SYS_EXECVE, path, argv, env)
}

// tell has the kernel write down a pid at the clone.
func (c *cloneArgs) tell(at *uint32) {
	c.flags |= unix.CLONE_PARENT_SETTID
	c.parentTID = uint64(uintptr(unsafe.Pointer(at)))
}

// into has the kernel put the child into an open cgroup v2 directory; -1: into none.
func (c *cloneArgs) into(group int) {
	if group >= 0 {
		c.flags |= unix.CLONE_INTO_CGROUP
		c.cgroup = uint64(group)
	}
}

// note has a child write down its failure.
func (s *script) note(p *Program) {
	if p.FailedAt != nil {
		s.page.outcome.note = uintptr(unsafe.Pointer(p.FailedAt))
	}
}
