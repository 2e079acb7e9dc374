//go:build linux

package keeper

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/spawn"
)

// fork makes the program's process, with the mark of p, whose pidfd it sets.
func (k *Keeper) fork(p *proc, prog *spawn.Program) (pid int, err error) {
	prog.PIDAt, prog.SessionAt, prog.FailedAt = p.slot.PIDAt(), p.slot.SessionAt(), p.slot.FailedAt()
	var was unix.Rlimit
	if unix.Getrlimit(rlimitRTTime, &was) == nil && was.Max == unix.RLIM_INFINITY && !limits(prog, rlimitRTTime) {
		prog.Limits = append(prog.Limits, spawn.Limit{Resource: rlimitRTTime, Soft: k.markOf(p.ref), Hard: was.Max, Try: true})
	}
	defer k.births.making()()
	pid, pidfd, err := k.scripts.Start(prog)
	if err == nil {
		p.pidfd = pidfd
	}
	return pid, err
}

func limits(prog *spawn.Program, resource int) bool {
	return slices.ContainsFunc(prog.Limits, func(l spawn.Limit) bool { return l.Resource == resource })
}
