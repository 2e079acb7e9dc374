//go:build linux

package keeper

import (
	"encoding/binary"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/eintr"
	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/memory"
	"github.com/tend-run/tend/keeper/script"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// A gate keeps a child from its program, on machines without scripts (package script),
// whose child limits itself and is on the board from its first call on. Two starts
// need a gate: of a process with limits that the kernel gives to a process and not to
// a cgroup, or by a cgroup v1, since no part of the program may run without them; and of a
// process without a cgroup v2, by which the next keeper would find what was forked. Former
// versions had gates on all machines, so a keeper may find a child that waits at one.
//
// The child is this program again. It limits itself, changes to its user and its
// directory, reports that it is ready, and waits. Then its pid goes to the board
// and the gate opens; to execute the program is all that is left. The vaults hold
// the gate. So if the keeper dies before the pid is on the board, the next one
// drops the gate, and the child ends without having run anything; after that,
// the next one opens it.
//
// The child has on its descriptors 3, 4 and 5: the gate, the report, which the
// exec closes, and a memfd with the wire.Spawn. A report is a byte (report*);
// what goes wrong is followed by the errno as u32 LE, and a text.
const (
	gateFD = 3 + iota
	reportFD
	requestFD
)

const (
	reportLimits = 1 + iota // limits could not be set
	reportExec              // anything else went wrong
	reportReady
)

// Exit statuses of a child that does not come to the program.
const (
	gateShut   = 125 // its gate was dropped
	notStarted = 127
)

// GateRole is the first argument of the program that waits at a gate, and
// gateResetOOM may be the second.
const (
	GateRole     = "gate"
	gateResetOOM = "reset-oom"
)

// gateEnv keeps the Go runtime of what waits from making threads.
var gateEnv = []string{"GOMAXPROCS=1", "GOGC=off"}

// gated reports whether a start without scripts needs a gate. The next keeper asks, too,
// when the process may have ended, and its cgroup be gone.
func (k *Keeper) gated(p *proc, spec *process.Spec) bool {
	l := &spec.Limits
	return p.slot.Flags()&board.FlagNoGroup != 0 || len(l.Rlimits) > 0 || l.Nice != 0 || l.OOMScoreAdj != 0 || k.groups.Joins(true, l)
}

// addGate makes the gate of a process; the child's end is appended to child.
func (k *Keeper) addGate(p *proc, child []int) ([]int, *wire.Error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return child, resourceError("pipes", err)
	}
	p.gate = pipe[1]
	return append(child, pipe[0]), nil
}

// openGate lets the child continue. The child may be gone already.
func (k *Keeper) openGate(p *proc) {
	spool.WriteAll(p.gate, []byte{1})
	closeFD(&p.gate)
	k.vaults.Drop(&p.vaulted, p.ref, wire.FDGate)
}

// executeGated is execute with a gate.
func (k *Keeper) executeGated(p *proc, spec *process.Spec, req *wire.Spawn, child []int, group int) *wire.Error {
	var e wire.Enc
	req.Append(&e)
	mem, err := memory.Create("tend-start", 0)
	if err != nil {
		return resourceError("memfd", err)
	}
	defer unix.Close(mem)
	if _, err := spool.WriteAll(mem, e.B); err != nil {
		return resourceError("memfd", err)
	}
	memory.Seal(mem, memory.Constant)
	var report [2]int
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC); err != nil {
		return resourceError("pipes", err)
	}
	defer unix.Close(report[0])
	prog := &script.Program{
		Path: "/proc/self/exe", Argv: []string{"tend-keeper", GateRole}, Env: gateEnv,
		Files: append(child, report[1], mem), Terminal: p.pty, Group: -1,
	}
	if p.group {
		prog.Group = group
	}
	if k.stats.resetOOM {
		prog.Argv = append(prog.Argv, gateResetOOM)
	}
	pid, err := k.fork(p, prog)
	unix.Close(report[1])
	if err != nil {
		return resourceError("fork", err)
	}
	p.pid = pid
	failpoint.Hit(failpoint.GateForked)
	var said [512]byte
	if n := readSome(report[0], said[:1]); n == 0 || said[0] != reportReady {
		n += readSome(report[0], said[n:])
		return k.failedAtGate(p, said[:n], req)
	}
	// Only now: what waits is larger than what such a limit may allow.
	own, err := k.groups.Limit(p.ref.Slot, p.ref.Gen, p.group, &spec.Limits)
	if err == nil {
		err = own.Add(pid)
	}
	if err != nil {
		k.killNow(p)
		return wire.StartError(process.StartLimits, errno(err), err.Error())
	}
	failpoint.Hit(failpoint.GateReached)
	p.slot.NotePID(pid)
	failpoint.Hit(failpoint.GateNoted)
	k.openGate(p)
	failpoint.Hit(failpoint.GateOpened)
	if n := readSome(report[0], said[:]); n > 0 { // else the exec has closed it
		return k.failedAtGate(p, said[:n], req)
	}
	return nil
}

// failedAtGate collects a child that came to its end before the program.
func (k *Keeper) failedAtGate(p *proc, report []byte, req *wire.Spawn) *wire.Error {
	if len(report) < 5 {
		k.killNow(p)
		return resourceError("fork", errors.New("the child ended before it came to the program"))
	}
	p.slot.Set(board.FlagTakenBack) // as in killNow
	unix.Wait4(p.pid, nil, 0, nil)
	no := syscall.Errno(binary.LittleEndian.Uint32(report[1:]))
	if report[0] == reportLimits {
		return wire.StartError(process.StartLimits, uint32(no), string(report[5:]))
	}
	return startError(no, req)
}

// readSome is read(2) that goes on after a signal; 0 at the end and for errors.
func readSome(fd int, b []byte) int {
	n, _ := eintr.Get(func() (int, error) { return unix.Read(fd, b) })
	return max(n, 0)
}
