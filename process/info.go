package process

import (
	"fmt"
	"time"
)

// State of a process. Observations such as "blocked on input" are not states:
// ask [Process.Wait].
type State uint8

const (
	Running State = iota
	Stopped       // by SIGSTOP or a terminal stop
	Exited
)

func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Stopped:
		return "stopped"
	case Exited:
		return "exited"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Info is the state of a process at one moment.
type Info struct {
	ID  ID
	PID int // 0 until started; kept after the exit
	// Session is the number of the session and of the process group in which the process was
	// started: PID if it leads them, as with a terminal. The kernel gives the number to
	// nobody else while one of them has members. 0: not known, or nothing is left.
	Session int
	Spec    Spec
	State   State
	Started time.Time
	// Exit is nil while the process runs.
	Exit *Exit
	// TreeGone: no descendant is left. This is known only if the process has its own
	// cgroup; otherwise it is false until nothing is left.
	TreeGone bool
	// Pinned: the process is kept after it has finished, until it is unpinned or removed.
	Pinned bool
	// SpecCut: to save space, the environment, large labels and most of a long command
	// were removed from Spec.
	SpecCut bool
	// Damaged says what is damaged in the process's files; "" if no damage is known.
	// Without a readable journal only this field and the ID are known.
	Damaged string
	// Streams of output, stdout and stderr or pty.
	Streams []StreamInfo
	Stdin   StdinInfo
}

// Stream returns the state of one output stream.
func (i *Info) Stream(s Stream) (StreamInfo, bool) {
	for _, si := range i.Streams {
		if si.Stream == s {
			return si, true
		}
	}
	return StreamInfo{}, false
}

// StreamInfo describes one output stream: bytes [Base, End) can be read.
type StreamInfo struct {
	Stream Stream
	Base   int64 // bytes before it were freed
	End    int64 // total bytes written so far
	EOF    bool  // nobody holds the writing end any more
}

// StdinInfo describes the input of a process.
type StdinInfo struct {
	Open     bool  // more can be written
	Accepted int64 // bytes taken from writers: the offset of the next write
}

// Cause says why a process ended.
type Cause uint8

const (
	CauseExited    Cause = iota // by itself, with a code
	CauseSignalled              // by a signal that tend did not send on its own decision
	CauseTimeout                // tend killed it at Spec.Timeout
	CauseOOM                    // killed for want of memory, by the kernel or for its sandbox; with code 137: the program that a shell ran
	CauseShutdown               // tend ended it in its own shutdown; or it was lost when the machine or all of tend died, see Lost
	CauseKilled                 // a caller asked tend for Kill or Signal
	CauseNoReaders              // tend killed it by Spec.KillWithoutReaders
	CauseLost                   // nobody observed its end, for an unknown reason: no status is known
)

var causeNames = [...]string{"exited", "signalled", "timeout", "oom", "shutdown", "killed", "no_readers", "lost"}

func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("cause(%d)", uint8(c))
}

// Exit is how a process ended: the kernel's word, never a guess.
type Exit struct {
	// Code is the exit code if Signal is 0 and it is not Lost; then it is -1 or 0.
	Code int
	// Signal that ended the process, or 0.
	Signal     int
	CoreDumped bool
	Cause      Cause
	Time       time.Time
	// Usage of the process and the children it waited for. Zero when the
	// process was reaped by another role than the keeper on an old kernel.
	UserTime, SystemTime time.Duration
	MaxRSS               int64 // bytes
}

// Lost: nobody observed the end, and no status is known. The cause is CauseShutdown if
// it was running when the machine or all of tend died, else CauseLost. (A process that
// tend ends in its own shutdown has a signal, or, if it ended by its own code,
// CauseExited.)
func (e *Exit) Lost() bool {
	return e.Cause == CauseLost || e.Cause == CauseShutdown && e.Signal == 0
}

// ShellStatus is the status a shell would show: the code, 128+signal, 124 for
// a timeout as timeout(1) does, or -1 when it is not known.
func (e *Exit) ShellStatus() int {
	switch {
	case e.Lost():
		return -1
	case e.Cause == CauseTimeout:
		return 124
	case e.Signal != 0:
		return 128 + e.Signal
	}
	return e.Code
}

// String is the text that Go's os.ProcessState gives: "exit status 3",
// "signal: killed", "signal: aborted (core dumped)".
func (e *Exit) String() string {
	switch {
	case e.Cause == CauseLost:
		return "exit status unknown (lost)"
	case e.Lost():
		return "exit status unknown (lost in a shutdown)"
	case e.Signal != 0 && e.CoreDumped:
		return "signal: " + signalText(e.Signal) + " (core dumped)"
	case e.Signal != 0:
		return "signal: " + signalText(e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}
