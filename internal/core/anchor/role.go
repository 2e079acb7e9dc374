//go:build linux

package anchor

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/pidfd"
)

// role is a process that is kept alive: started, or found alive, watched by
// its pidfd, and started again when it dies.
type role struct {
	name  string
	start func() (pid int, err error)

	pid     int
	ticks   uint64 // start time, to tell it from a later owner of the pid
	pidfd   int
	since   time.Time
	pause   time.Duration
	stopped bool          // must not be started again
	fails   int           // times in a row that it ended by itself soon after its start
	judged  bool          // the end of the current process is counted in fails, or is not to be
	asked   bool          // its end was asked for, as by an upgrade: no crash
	well    bool          // the last one was our child, and ended in good order
	ended   chan struct{} // closed when the current process ended
}

// Pauses between a role's death and its next start: none if it lived for
// livedLong, else doubling up to a second. A role that ends by itself again and
// again, before it has lived for livedWell, is started after longer and longer pauses,
// maxFailPause at most; after failsToTell times that is reported.
const (
	firstPause   = 10 * time.Millisecond
	maxPause     = time.Second
	livedLong    = 100 * time.Millisecond
	livedWell    = 10 * time.Second
	maxFailPause = 30 * time.Second
	failsToTell  = 5
)

// nextPause is the rule, as a function.
func nextPause(last, lived time.Duration) time.Duration {
	if lived >= livedLong {
		return 0
	}
	return min(max(2*last, firstPause), maxPause)
}

// failPause is the pause after a role has failed so many times in a row.
func failPause(fails int) time.Duration {
	return min(firstPause<<min(max(fails-1, 0), 20), maxFailPause)
}

// ownFault reports whether a process ended by its own doing, and badly: it gave up,
// or it crashed. What somebody kills is not to blame.
func ownFault(status unix.WaitStatus) bool {
	if status.Signaled() {
		switch status.Signal() {
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGABRT, unix.SIGILL, unix.SIGFPE, unix.SIGSYS, unix.SIGTRAP:
			return true
		}
		return false
	}
	return status.ExitStatus() != 0
}

// judge counts an end in fails.
func (r *role) judge(status unix.WaitStatus) {
	if r.judged {
		return
	}
	r.judged = true
	r.well = status.Exited() && status.ExitStatus() == 0
	if ownFault(status) && !r.asked && time.Since(r.since) < livedWell {
		r.fails++
	} else {
		r.fails = 0
	}
}

// cannotStart says that a role fails, in the words of the role if it left any.
func cannotStart(name string, fails int, status unix.WaitStatus, lastWords string) error {
	how := fmt.Sprintf("exit status %d", status.ExitStatus())
	if status.Signaled() {
		how = fmt.Sprintf("signal %v", status.Signal())
	}
	if lastWords == "" {
		lastWords = "it says nothing; see the log of tend serve"
	}
	return fmt.Errorf("the %s cannot start (%d times in a row; %s): %s. It is tried again, at last every %v; to end the daemon, end tend serve, or tend shutdown", name, fails, how, lastWords, maxFailPause)
}

// tellFails says that a role fails, in the state of the daemon and, less often, in the log.
func tellFails(run *rundir.Dir, name string, fails int, status unix.WaitStatus, log func(error)) {
	if fails < failsToTell {
		return
	}
	err := cannotStart(name, fails, status, run.LastWords(name))
	run.SetTrouble(name, err)
	if fails == failsToTell || failPause(fails) == maxFailPause {
		log(err)
	}
}

// gone takes note of the end of the current process and says how long to wait
// before the next.
func (r *role) gone(lived time.Duration) time.Duration {
	if r.asked {
		lived = livedLong
	}
	r.pid, r.asked, r.judged = 0, false, false
	r.pause = nextPause(r.pause, lived)
	if r.fails > 0 {
		return max(r.pause, failPause(r.fails))
	}
	return r.pause
}

// end sends a signal that is to end the role. The caller holds the lock of the role,
// so the pidfd stays the role's.
func (r *role) end(sig unix.Signal) {
	if r.pid > 0 {
		r.asked = true
		unix.PidfdSendSignal(r.pidfd, unix.SIGCONT, nil, 0) // a stopped one could not obey
		unix.PidfdSendSignal(r.pidfd, sig, nil, 0)
	}
}

// adopt takes a living process over; false if it is gone.
func (r *role) adopt(pid int, ticks uint64) bool {
	if pid <= 0 || ticks == 0 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	if rundir.StartTicks(pid) != ticks {
		unix.Close(fd)
		return false
	}
	r.set(pid, ticks, fd)
	return true
}

func (r *role) set(pid int, ticks uint64, pidfd int) {
	r.well, r.pid, r.ticks, r.pidfd, r.since, r.ended = false, pid, ticks, pidfd, time.Now(), make(chan struct{})
}

// waitEnd blocks until the process with this pidfd has exited.
func waitEnd(fd int) {
	for !pidfd.Ended(fd, -1) {
		time.Sleep(100 * time.Millisecond)
	}
}

// spawn starts a role's program in a session of its own: a terminal's Ctrl-C
// is for the launcher alone. stdin is /dev/null.
func spawn(path string, argv, env []string, extra []int) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), 1, 2}
	for _, fd := range extra {
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", strings.Join(argv, " "), err)
	}
	return pid, nil
}

// line is the role's line of the roles file.
func (r *role) line() rundir.RolePID { return rundir.RolePID{Name: r.name, PID: r.pid, Ticks: r.ticks} }
