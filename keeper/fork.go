//go:build linux

package keeper

import (
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/calm"
	"github.com/tend-run/tend/keeper/script"
)

// fork makes a child that becomes the program, with the mark of p, whose pidfd it
// sets: by a script, or by syscall.ForkExec where the machine allows no script.
func (k *Keeper) fork(p *proc, prog *script.Program) (pid int, err error) {
	if k.scripts == nil {
		return k.marked(p, func() (int, error) { return forkExec(prog, &p.pidfd) })
	}
	prog.PIDAt, prog.SessionAt, prog.FailedAt = p.slot.PIDAt(), p.slot.SessionAt(), p.slot.FailedAt()
	var was unix.Rlimit
	if unix.Getrlimit(rlimitRTTime, &was) == nil && was.Max == unix.RLIM_INFINITY && !limits(prog, rlimitRTTime) {
		prog.Limits = append(prog.Limits, script.Limit{Resource: rlimitRTTime, Soft: k.markOf(p.ref), Hard: was.Max, Try: true})
	}
	pid, pidfd, err := k.scripts.Start(prog)
	if err == nil {
		p.pidfd = pidfd
	}
	return pid, err
}

func limits(prog *script.Program, resource int) bool {
	return slices.ContainsFunc(prog.Limits, func(l script.Limit) bool { return l.Resource == resource })
}

// forkExec is syscall.ForkExec, which knows of no limits; the child has the timer slack
// that it should.
func forkExec(prog *script.Program, pidfd *int) (pid int, err error) {
	attr := &syscall.ProcAttr{
		Dir: prog.Dir, Env: prog.Env,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: prog.Terminal, PidFD: pidfd, UseCgroupFD: prog.Group >= 0, CgroupFD: prog.Group},
	}
	for _, fd := range prog.Files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if u := prog.User; u != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calm.Thread()
	return syscall.ForkExec(prog.Path, prog.Argv, attr)
}
