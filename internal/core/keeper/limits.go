//go:build linux

package keeper

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// limitProgram has the child limit itself, before it executes the program, by what the
// kernel gives to a process and not to a cgroup.
func (k *Keeper) limitProgram(prog *spawn.Program, l *process.Limits) {
	prog.Nice = l.Nice
	if l.OOMScoreAdj != 0 || k.stats.resetOOM {
		prog.OOM = &l.OOMScoreAdj
	}
	for _, r := range l.Rlimits {
		prog.Limits = append(prog.Limits, spawn.Limit{Resource: r.Resource, Soft: r.Soft, Hard: r.Hard})
	}
}

// limitError says which limit the kernel refused; nil: something else has failed.
func limitError(err error, l *process.Limits) *wire.Error {
	var f *spawn.Failure
	if !errors.As(err, &f) || f.Errno == unix.EMFILE || f.Errno == unix.ENFILE {
		return nil
	}
	switch f.Step {
	case spawn.StepTasks:
		err = f
	case spawn.StepNice:
		err = niceError(l, f.Errno)
	case spawn.StepOOM:
		err = oomError(l, f.Errno)
	case spawn.StepLimit:
		err = rlimitError(f.Limit, l.Rlimits[f.Limit], f.Errno)
	default:
		return nil
	}
	return wire.StartError(process.StartLimits, uint32(f.Errno), err.Error())
}

func niceError(l *process.Limits, err error) error {
	return fmt.Errorf("limits.nice %d: %w", l.Nice, err)
}

func oomError(l *process.Limits, err error) error {
	return fmt.Errorf("limits.oom_score_adj %d: %w", l.OOMScoreAdj, err)
}

func rlimitError(i int, r process.Rlimit, err error) error {
	return fmt.Errorf("limits.rlimits[%d] (resource %d, soft %d, hard %d): %w", i, r.Resource, r.Soft, r.Hard, err)
}
