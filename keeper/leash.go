//go:build linux

package keeper

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/orphan"
	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/process"
)

// settleLimits is for a child whose keeper died before it had let it go. One
// that stood at its first instruction dies by that: the stop is a SIGTRAP of
// ptrace(2), which ends it when its tracer is gone. One that had not come that
// far runs, free of limits, and gets them now, with all that it may have forked;
// or it is still on its way there, where it would be stopped by its new parent.
// settleLimits reports whether the program runs, or has run.
func (k *Keeper) settleLimits(p *proc, pid int, spec *process.Spec) bool {
	thaw := k.groups.freeze(p.ref.Slot, forkedWait)
	defer thaw()
	for end := time.Now().Add(forkedWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		state := stateOf(pid)
		if state == stands {
			break
		}
		if state == traced || state == doomed {
			return false
		}
		if e := orphan.Find(k.run.Path(rundir.Orphans), pid, p.slot.Reserved()); state == over && e != nil {
			return e.Signal != int(unix.SIGTRAP)
		}
	}
	if exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err == nil && strings.Contains(exe, "tend-keeper") {
		return false // still a copy of its keeper, before the program
	}
	l := limitsOf(spec, k.groups, p)
	for _, member := range k.members(p) {
		if err := l.set(member); err != nil {
			k.logf("process %s: limits of pid %d: %v", p.id, member, err)
		}
	}
	return true
}

// childState is what a child in a frozen cgroup does.
type childState int

const (
	goes   childState = iota // on the way into the kernel's hands; or to its end
	stands                   // frozen or stopped: it lives
	traced                   // stopped at its first instruction
	doomed                   // frozen there: what was the stop ends it as soon as it goes on
	over                     // dead, collected or not
)

// dying are the flags (PF_EXITING, PF_DUMPCORE, PF_SIGNALED) of a process that
// sleeps for the last time.
const dying = 0x4 | 0x200 | 0x400

// pending reports whether a signal waits for the process whose
// /proc/PID/status this is.
func pending(status []byte, sig unix.Signal) bool {
	for line := range bytes.Lines(status) {
		name, mask, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "SigPnd" && string(name) != "ShdPnd" {
			continue
		}
		if m, err := strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64); err == nil && m>>(sig-1)&1 != 0 {
			return true
		}
	}
	return false
}

func stateOf(pid int) childState {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	i := bytes.LastIndexByte(stat, ')')
	if err != nil || i < 0 {
		return over
	}
	f := bytes.Fields(stat[i+1:]) // from the third field of proc_pid_stat(5) on
	if len(f) < 7 {
		return over
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	switch {
	case f[0][0] == 'Z' || f[0][0] == 'X':
		return over
	case err != nil || flags&dying != 0:
		return goes
	case f[0][0] == 't':
		return traced
	case f[0][0] == 'S' || f[0][0] == 'T':
		if status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status"); err == nil && pending(status, unix.SIGTRAP) {
			return doomed
		}
		return stands
	}
	return goes
}
