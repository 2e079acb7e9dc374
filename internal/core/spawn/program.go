package spawn

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrUnsupported: this machine cannot start programs by scripts.
var ErrUnsupported = errors.New("a script of system calls is not possible here")

// Program describes what a child becomes. It has its own session and process group. It leads
// them only if it has a terminal.
type Program struct {
	Path      string
	Argv, Env []string
	Dir       string // "": the parent's
	Files     []int  // its descriptors 0, 1, 2 …; it has no others
	Terminal  bool   // descriptor 0 becomes the controlling terminal
	Group     int    // an open cgroup v2 directory; -1: the parent's
	// Tasks are open files "tasks" of cgroups v1, which the child joins; and Own those that
	// are the program's own: what helps it into a sandbox has no place in them.
	Tasks, Own []int
	User       *User // nil: the parent's
	Limits     []Limit
	Nice       int  // 0: the parent's
	OOM        *int // the OOM score; nil: the parent's. 0 is set if the kernel allows it
	// PIDAt receives the pid before the child makes its first call, in memory that other
	// processes may share: if this process dies, they find the child there. Nil: not
	// wanted. Inside, only a program with a terminal has it there so early; see
	// Enter.Digits.
	PIDAt *uint32
	// SessionAt receives the number of the session and the group before the program exists.
	// Start clears it first; it stays 0 for a program that leads its session. Nil: not wanted.
	SessionAt *uint32
	// FailedAt becomes 1 before a child ends that did not execute its program, also if this
	// process has died by then. Nil: not wanted.
	FailedAt *uint32
	Enter    *Enter // nil: the parent's namespaces and rights
}

// User that a program runs as. Groups are all supplementary groups.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Limit is a resource limit (setrlimit(2)). It may be above the parent's if the parent has
// the right. It is set last.
type Limit struct {
	Resource   int
	Soft, Hard uint64
	Try        bool // it does not matter if the kernel refuses it
}

// Step is a step of a child before its program.
type Step uint8

// Steps that may fail. [Failure.Limit] belongs to StepLimit.
const (
	StepFiles Step = iota // descriptors
	StepFork              // session, group and the program's process
	StepTasks
	StepNice
	StepOOM
	StepLimit
	StepUser
	StepDir
	StepTerminal
	StepEnter  // a sandbox; ESRCH and ENOMEM: it has ended
	StepHarden // capabilities, filter, no_new_privs, Landlock
	StepExec
)

var steps = [...]string{
	StepFiles: "descriptors", StepFork: "make a process", StepTasks: "join a cgroup", StepNice: "priority", StepOOM: "OOM score",
	StepLimit: "limit of resources",
	StepUser:  "change to the user", StepDir: "change to the directory", StepTerminal: "take the terminal",
	StepEnter: "enter the sandbox", StepHarden: "give up rights", StepExec: "execute",
}

func (s Step) String() string {
	if int(s) < len(steps) {
		return steps[s]
	}
	return fmt.Sprintf("step %d", s)
}

// Failure is the end of a child before its program.
type Failure struct {
	Step  Step
	Limit int // index of the limit
	Errno syscall.Errno
}

func (f *Failure) Error() string { return f.Step.String() + ": " + f.Errno.Error() }

// Unwrap returns the errno.
func (f *Failure) Unwrap() error { return f.Errno }
