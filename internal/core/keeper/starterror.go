//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

func errno(err error) uint32 {
	var e syscall.Errno
	if errors.As(err, &e) {
		return uint32(e)
	}
	return 0
}

func resourceError(what string, err error) *wire.Error {
	switch {
	case errors.Is(err, unix.EMFILE):
		what = "no file descriptors are left to tend; end some processes, or raise ulimit -n: " + what
	case errors.Is(err, unix.ENFILE):
		what = "no file descriptors are left on this machine; end some processes, or raise fs.file-max: " + what
	case errors.Is(err, unix.EAGAIN):
		what = "no more processes are allowed; end some, or raise ulimit -u or pids.max: " + what
	case errors.Is(err, unix.ENOMEM):
		what = "no memory is left; end some processes: " + what
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		what = "the filesystem of the state directory is full; free some space: " + what
	case errors.Is(err, unix.ENOENT) && what == "spool":
		what = "the state directory was removed or moved while tend used it; end this tend, and start it again: " + what
	}
	return wire.StartError(process.StartResources, errno(err), what+": "+err.Error())
}

// startError says what failed on the way to a program, which the child tells by its step. b is
// the container that the program was to start in; nil: none. Nothing of this machine is looked at for it.
func startError(err error, req *wire.Spawn, l *process.Limits, b *heldContainer) *wire.Error {
	f, ok := errors.AsType[*spawn.Failure](err)
	if werr := limitError(f, l); werr != nil {
		return werr
	}
	if b != nil && (b.ending.Load() || !b.container.Alive()) {
		return &wire.Error{Code: wire.CodeContainerEnded}
	}
	e := errno(err)
	switch {
	case !ok && b != nil:
		return resourceError("sandbox", err)
	case !ok:
	case f.Step == spawn.StepUser:
		return wire.StartError(process.StartBadUser, e, fmt.Sprintf("uid %d, gid %d", req.UID, req.GID))
	case f.Step == spawn.StepDir:
		return wire.StartError(process.StartBadDir, e, req.Dir)
	case f.Step == spawn.StepTerminal:
		return wire.StartError(process.StartPTY, e, f.Error())
	case f.Step == spawn.StepExec:
		if werr := execError(f.Errno, req); werr != nil {
			return werr
		}
	}
	switch {
	case b != nil:
		return resourceError(f.Step.String(), f.Errno)
	case e == uint32(unix.EAGAIN), e == uint32(unix.ENOMEM), e == uint32(unix.EMFILE), e == uint32(unix.ENFILE):
		return resourceError("fork", err)
	}
	return wire.StartError(process.StartOther, e, err.Error())
}

// execError is for a program that the kernel does not execute; nil: it is not the program.
func execError(errno syscall.Errno, req *wire.Spawn) *wire.Error {
	reason := process.StartNotFound
	switch errno {
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
	case unix.EACCES, unix.EPERM:
		reason = process.StartPermission
	case unix.ENOEXEC, unix.ELIBBAD:
		reason = process.StartFormat
	case unix.E2BIG, unix.ENAMETOOLONG:
		reason = process.StartTooLong
	default:
		return nil
	}
	return wire.StartError(reason, uint32(errno), req.Argv[0])
}

// limitError says which limit the kernel refused; nil: something else has failed.
func limitError(f *spawn.Failure, l *process.Limits) *wire.Error {
	if f == nil || f.Errno == unix.EMFILE || f.Errno == unix.ENFILE {
		return nil
	}
	var err error
	switch f.Step {
	case spawn.StepTasks:
		err = f
	case spawn.StepNice:
		err = fmt.Errorf("limits.nice %d: %w", l.Nice, f.Errno)
	case spawn.StepOOM:
		err = fmt.Errorf("limits.oom_score_adj %d: %w", l.OOMScoreAdj, f.Errno)
	case spawn.StepLimit:
		r := l.Rlimits[f.Limit]
		err = fmt.Errorf("limits.rlimits[%d] (resource %d, soft %d, hard %d): %w", f.Limit, r.Resource, r.Soft, r.Hard, f.Errno)
	default:
		return nil
	}
	return wire.StartError(process.StartLimits, uint32(f.Errno), err.Error())
}
