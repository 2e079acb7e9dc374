//go:build linux

package keeper

import (
	"encoding/binary"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// PassGate is the child: it waits at the gate and becomes the program. It does
// not return.
func PassGate(args []string) {
	for fd := gateFD; fd <= requestFD; fd++ {
		unix.CloseOnExec(fd)
	}
	b, err := io.ReadAll(io.NewSectionReader(os.NewFile(requestFD, "request"), 0, wire.MaxFrame))
	if err != nil {
		reportFailure(reportExec, err)
	}
	req, err := wire.ParseSpawn(b)
	if err != nil {
		reportFailure(reportExec, err)
	}
	spec, err := spool.DecodeSpec(req.Spec)
	if err != nil {
		reportFailure(reportExec, err)
	}
	if err := limitSelf(&spec.Limits, len(args) > 0 && args[0] == gateResetOOM); err != nil {
		reportFailure(reportLimits, err)
	}
	if err := becomeUser(&req); err != nil {
		reportFailure(reportExec, err)
	}
	if req.Dir != "" {
		if err := unix.Chdir(req.Dir); err != nil {
			reportFailure(reportExec, err)
		}
	}
	path, err := syscall.BytePtrFromString(req.Path)
	if err != nil {
		reportFailure(reportExec, err)
	}
	argv, err := syscall.SlicePtrFromStrings(req.Argv)
	if err != nil {
		reportFailure(reportExec, err)
	}
	env, err := syscall.SlicePtrFromStrings(req.Env)
	if err != nil {
		reportFailure(reportExec, err)
	}
	for i, r := range spec.Limits.Rlimits { // last: they are not for us
		if err := syscall.Setrlimit(r.Resource, &syscall.Rlimit{Cur: r.Soft, Max: r.Hard}); err != nil {
			reportFailure(reportLimits, rlimitError(i, r, err))
		}
	}
	// An exec that fails has two effects that we need. It takes back what Go does
	// to the limit of descriptors for itself. And threads that are being made are
	// there when it returns: they would have the real exec fail, or fail by it.
	syscall.Exec("", nil, nil)
	becomeProgram(path, argv, env)
}

// becomeProgram says that everything is ready, waits for the gate to open, and
// executes the program. Its system calls are bare ones: under the limits the
// runtime may get neither memory nor another thread, and as long as the one
// processor that it has (see gateEnv) is not given away it needs none.
func becomeProgram(path *byte, argv, env []*byte) {
	ready, open := [1]byte{reportReady}, [1]byte{}
	syscall.RawSyscall(unix.SYS_WRITE, reportFD, uintptr(unsafe.Pointer(&ready)), 1)
	for {
		n, _, err := syscall.RawSyscall(unix.SYS_READ, gateFD, uintptr(unsafe.Pointer(&open)), 1)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != 0 {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, gateShut, 0, 0)
		}
		break
	}
	_, _, err := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	failed := [5]byte{reportExec, byte(err), byte(err >> 8)}
	syscall.RawSyscall(unix.SYS_WRITE, reportFD, uintptr(unsafe.Pointer(&failed)), uintptr(len(failed)))
	syscall.RawSyscall(unix.SYS_EXIT_GROUP, notStarted, 0, 0)
}

// limitSelf sets what only the daemon's user may set.
func limitSelf(l *process.Limits, resetOOM bool) error {
	if l.Nice != 0 {
		runtime.LockOSThread() // whose priority it is; it executes the program
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, l.Nice); err != nil {
			return niceError(l, err)
		}
	}
	if l.OOMScoreAdj != 0 || resetOOM {
		if err := procfs.SetOOMScore(os.Getpid(), l.OOMScoreAdj); err != nil && l.OOMScoreAdj != 0 {
			return oomError(l, err)
		}
	}
	for i, r := range l.Rlimits { // raising a hard limit takes a privilege
		var now syscall.Rlimit
		if err := syscall.Getrlimit(r.Resource, &now); err == nil && r.Hard > now.Max {
			if err := syscall.Setrlimit(r.Resource, &syscall.Rlimit{Cur: now.Cur, Max: r.Hard}); err != nil {
				return rlimitError(i, r, err)
			}
		}
	}
	return nil
}

func becomeUser(req *wire.Spawn) error {
	if !req.Cred {
		return nil
	}
	groups := make([]int, len(req.Groups))
	for i, g := range req.Groups {
		groups[i] = int(g)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return err
	}
	if err := syscall.Setgid(int(req.GID)); err != nil {
		return err
	}
	return syscall.Setuid(int(req.UID))
}

func reportFailure(kind byte, err error) {
	b := binary.LittleEndian.AppendUint32([]byte{kind}, errno(err))
	unix.Write(reportFD, append(b, err.Error()...))
	os.Exit(notStarted)
}
