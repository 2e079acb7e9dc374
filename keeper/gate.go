//go:build linux

package keeper

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// A gate makes a start happen once where there is no cgroup v2, by which the
// next keeper would find what was forked: the child is this program again, which
// waits at the gate and executes the program when it opens. The pid is on the
// board before that, and the vaults hold the gate. So if the keeper dies before
// the pid is written down, the next one drops the gate, and the child ends
// without having done anything; after that, the next one opens it.
//
// The child has on its descriptors 3, 4 and 5: the gate, a pipe for what goes
// wrong, which the exec closes, and a memfd with the wire.Spawn. What goes wrong
// is a byte (failed*), the errno as u32 LE, and a text.
const (
	gateFD = 3 + iota
	reportFD
	requestFD
)

const (
	failedLimits = 1 + iota
	failedExec
)

// gateShut is the exit status of a child whose gate was dropped.
const gateShut = 125

// GateRole is the first argument of the program that waits at a gate, and
// gateResetOOM may be the second.
const (
	GateRole     = "gate"
	gateResetOOM = "reset-oom"
)

// addGate makes the gate of a process; the child's end is appended to child.
func (k *Keeper) addGate(p *proc, child []int) ([]int, *wire.Error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return child, resourceError("pipes", err)
	}
	p.gate = pipe[1]
	return append(child, pipe[0]), nil
}

// openGate lets the child go on. Nobody may be there any more.
func (k *Keeper) openGate(p *proc) {
	writeAll(p.gate, []byte{1})
	closeFD(&p.gate)
	k.vaults.drop(&p.vaulted, p.ref, wire.FDGate)
}

// forkGated is fork with a gate.
func (k *Keeper) forkGated(p *proc, spec *process.Spec, req *wire.Spawn, child []int) *wire.Error {
	if l := limitsOf(spec, k.groups, p); len(l.cgroupLimits()) > 0 {
		err := l.prepare()
		return wire.StartError(process.StartLimits, errno(err), err.Error())
	}
	var e wire.Enc
	req.Append(&e)
	mem, err := unix.MemfdCreate("tend-start", unix.MFD_CLOEXEC)
	if err != nil {
		return resourceError("memfd", err)
	}
	defer unix.Close(mem)
	if _, err := writeAll(mem, e.B); err != nil {
		return resourceError("memfd", err)
	}
	var report [2]int
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC); err != nil {
		return resourceError("pipes", err)
	}
	defer unix.Close(report[0])
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &p.pidfd, Setctty: spec.PTY != nil}}
	for _, fd := range append(child, report[1], mem) {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	argv := []string{"tend-keeper", GateRole}
	if k.stats.resetOOM {
		argv = append(argv, gateResetOOM)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", argv, attr)
	unix.Close(report[1])
	if err != nil {
		return resourceError("fork", err)
	}
	p.pid = pid
	p.slot.NotePID(pid)
	k.openGate(p)
	var failed []byte
	for buf := make([]byte, 512); ; {
		n, err := unix.Read(report[0], buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 { // the exec has closed it, or the child has ended
			break
		}
		failed = append(failed, buf[:n]...)
	}
	if len(failed) < 5 {
		return nil
	}
	unix.Wait4(pid, nil, 0, nil)
	no := syscall.Errno(binary.LittleEndian.Uint32(failed[1:]))
	if failed[0] == failedLimits {
		return wire.StartError(process.StartLimits, uint32(no), string(failed[5:]))
	}
	return startError(no, req)
}

// PassGate is the child: it waits at the gate and becomes the program. It does
// not return.
func PassGate(args []string) {
	for fd := gateFD; fd <= requestFD; fd++ {
		unix.CloseOnExec(fd)
	}
	b, err := io.ReadAll(io.NewSectionReader(os.NewFile(requestFD, "request"), 0, wire.MaxFrame))
	if err != nil {
		reportFailure(failedExec, err)
	}
	req, err := wire.ParseSpawn(b)
	if err != nil {
		reportFailure(failedExec, err)
	}
	spec, err := spool.DecodeSpec(req.Spec)
	if err != nil {
		reportFailure(failedExec, err)
	}
	var open [1]byte
	for {
		n, err := unix.Read(gateFD, open[:])
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			os.Exit(gateShut)
		}
		break
	}
	if err := limitSelf(&spec.Limits, len(args) > 0 && args[0] == gateResetOOM); err != nil {
		reportFailure(failedLimits, err)
	}
	if err := becomeUser(&req); err != nil {
		reportFailure(failedExec, err)
	}
	if req.Dir != "" {
		if err := unix.Chdir(req.Dir); err != nil {
			reportFailure(failedExec, err)
		}
	}
	for i, r := range spec.Limits.Rlimits { // last: they are not for us
		if err := syscall.Setrlimit(r.Resource, &syscall.Rlimit{Cur: r.Soft, Max: r.Hard}); err != nil {
			reportFailure(failedLimits, rlimitError(i, r, err))
		}
	}
	reportFailure(failedExec, syscall.Exec(req.Path, req.Argv, req.Env))
}

// limitSelf sets what only the daemon's user may set.
func limitSelf(l *process.Limits, resetOOM bool) error {
	if l.Nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, l.Nice); err != nil {
			return fmt.Errorf("limits.nice %d: %w", l.Nice, err)
		}
	}
	if l.OOMScoreAdj != 0 || resetOOM {
		if err := setOOMScore(os.Getpid(), l.OOMScoreAdj); err != nil && l.OOMScoreAdj != 0 {
			return fmt.Errorf("limits.oom_score_adj %d: %w", l.OOMScoreAdj, err)
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
	os.Exit(127)
}
