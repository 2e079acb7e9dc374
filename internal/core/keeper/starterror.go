//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

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

// startError finds out which step of the child's way to the program failed:
// the kernel gives one errno for all.
func startError(err error, req *wire.Spawn) *wire.Error {
	e := errno(err)
	if req.Dir != "" && !enterable(req) {
		return wire.StartError(process.StartBadDir, e, req.Dir)
	}
	switch syscall.Errno(e) {
	case unix.ENOENT:
		return wire.StartError(process.StartNotFound, e, req.Argv[0])
	case unix.EACCES:
		return wire.StartError(process.StartPermission, e, req.Argv[0])
	case unix.EPERM:
		return wire.StartError(process.StartBadUser, e, fmt.Sprintf("uid %d, gid %d", req.UID, req.GID))
	case unix.ENOEXEC:
		return wire.StartError(process.StartFormat, e, req.Argv[0])
	case unix.ENOTDIR:
		return wire.StartError(process.StartNotFound, e, req.Argv[0])
	case unix.E2BIG, unix.ENAMETOOLONG:
		return wire.StartError(process.StartTooLong, e, req.Argv[0])
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return resourceError("fork", err)
	}
	return wire.StartError(process.StartOther, e, err.Error())
}

// enterable reports whether the user may enter the directory, and pass to it. The
// kernel is asked with the rights of the user, on a thread that ends with them.
func enterable(req *wire.Spawn) bool {
	if !req.Cred {
		return unix.Access(req.Dir+"/.", unix.X_OK) == nil
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		done <- func() error {
			groups := append([]uint32{req.GID}, req.Groups...)
			if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); e != 0 {
				return e
			}
			if err := unix.Setfsgid(int(req.GID)); err != nil {
				return err
			}
			if err := unix.Setfsuid(int(req.UID)); err != nil {
				return err
			}
			var st unix.Stat_t
			return unix.Stat(req.Dir+"/.", &st)
		}()
	}()
	return <-done == nil
}
