//go:build linux

package fakeproc

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/account"
	"github.com/tend-run/tend/process"
)

// openStreams makes the pipes or the terminal. It returns the child's
// descriptors 0, 1 and 2, which the caller closes, with an error too.
func (p *proc) openStreams(acc *account.Account) (child []int, err error) {
	defer func() {
		if err != nil {
			reason := process.StartResources
			if p.spec.PTY != nil {
				reason = process.StartPTY
			}
			err = &process.StartError{Reason: reason, What: "streams", Err: err}
		}
	}()
	if p.spec.PTY != nil {
		return p.openTerminal(*p.spec.PTY, acc)
	}
	if p.spec.Stdin == process.StdinPipe {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return child, err
		}
		child = append(child, pipe[0])
		p.in.file, p.in.open = newFile(pipe[1], "stdin"), true
	} else {
		null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return child, err
		}
		child = append(child, null)
	}
	for _, s := range []process.Stream{process.Stdout, process.Stderr} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return child, err
		}
		child = append(child, pipe[1])
		p.addOutput(s, pipe[0])
	}
	return child, nil
}

func (p *proc) openTerminal(size process.Size, acc *account.Account) ([]int, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	p.addOutput(process.PTY, master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	if err := setSize(master, size); err != nil {
		return nil, err
	}
	slave, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if no != 0 {
		return nil, no
	}
	child := []int{int(slave), int(slave), int(slave)}
	if acc.Other {
		if err := unix.Fchown(int(slave), acc.UID, -1); err != nil {
			return child, err
		}
	}
	p.in.file, p.in.open = p.outputs[0].file, true
	return child, nil
}

func (p *proc) addOutput(s process.Stream, fd int) {
	o := &output{stream: s, file: newFile(fd, s.String()), limit: p.spec.Retention.Limit,
		block: p.spec.Retention.Policy == process.Block, room: sync.NewCond(&p.mu)}
	if o.limit == 0 {
		o.limit = defaultRetention
	}
	p.outputs = append(p.outputs, o)
}

func setSize(fd int, size process.Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows})
}

// applyLimits sets the limits of a child that stands at its first instruction,
// and lets it go.
func applyLimits(pid int, l *process.Limits) error {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if !ws.Stopped() {
		return fmt.Errorf("the program ended before its limits were set")
	}
	for i, r := range l.Rlimits {
		if err := unix.Prlimit(pid, r.Resource, &unix.Rlimit{Cur: r.Soft, Max: r.Hard}, nil); err != nil {
			return fmt.Errorf("limits.rlimits[%d]: %w", i, err)
		}
	}
	if l.Nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, pid, l.Nice); err != nil {
			return fmt.Errorf("limits.nice: %w", err)
		}
	}
	if l.OOMScoreAdj != 0 {
		path := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
		if err := os.WriteFile(path, []byte(strconv.Itoa(l.OOMScoreAdj)), 0); err != nil {
			return fmt.Errorf("limits.oom_score_adj: %w", err)
		}
	}
	return unix.PtraceDetach(pid)
}
