package process

import (
	"context"
	"time"
)

// Manager starts processes and finds them again. All methods may be called
// concurrently. A context cancels the call, never the process.
type Manager interface {
	// Start starts a process and returns when the kernel runs the program.
	// Errors: *InvalidError, ErrExists, *StartError, ErrUnavailable.
	Start(ctx context.Context, spec Spec) (Process, error)
	// Get finds one process, live or finished; see Resolve. ErrNotFound,
	// AmbiguousError.
	Get(ctx context.Context, sel Selector) (Process, error)
	// List returns all processes that match, oldest first.
	List(ctx context.Context, f Filter) ([]Info, error)
	// Watch delivers the lifecycle facts (no output) of all processes from
	// now on: EventStarted, EventExited, EventTreeGone, EventRemoved. A
	// watcher that lags more than 4,096 events behind gets ErrLagged and
	// must List again.
	Watch(ctx context.Context) (Watcher, error)
}

// Watcher delivers lifecycle events, like [Reader] without the output.
type Watcher interface {
	Next() (ev Event, ok bool, err error)
	Ready() <-chan struct{}
	Close() error
}

// Process is a handle to one process. It holds no connection and no lock; any
// number may exist for one process.
type Process interface {
	ID() ID
	// Info returns what is known now. ErrNotFound once it was removed.
	Info(ctx context.Context) (Info, error)
	// Read opens a reader. Errors: ErrOffset, *InvalidError, ErrNotFound.
	Read(ctx context.Context, opts ReadOptions) (Reader, error)
	// Write feeds stdin or the terminal.
	Write(ctx context.Context, in Input) (Accepted, error)
	Controller
}

type briefKey struct{}

// Brief returns a context in which Info may leave out whether a running process
// is stopped: State is then Running or Exited. To know it, /proc is read for each
// process, which is most of what Info costs.
func Brief(ctx context.Context) context.Context { return context.WithValue(ctx, briefKey{}, true) }

// IsBrief reports whether ctx comes from Brief.
func IsBrief(ctx context.Context) bool { return ctx.Value(briefKey{}) != nil }

// Controller acts on a running process.
type Controller interface {
	// Signal sends sig. ErrExited if no process is left to receive it.
	Signal(ctx context.Context, sig int, scope Scope) error
	// Kill ends the whole tree with SIGKILL and returns when the kernel says
	// that it is empty, or with the survivors (a process in the kernel's
	// uninterruptible sleep). On a finished process it kills what is left of
	// the tree; with nothing left it returns ErrExited.
	Kill(ctx context.Context) (KillResult, error)
	// Resize changes the size of the terminal and returns the size before; zero
	// if it is not known. ErrNoPTY without a terminal.
	Resize(ctx context.Context, r Resize) (before Size, err error)
	// Trim frees output before the offset, for Retention.Policy Block.
	Trim(ctx context.Context, s Stream, before int64) error
	// Pin says whether a process is kept when it has finished, beyond its TTL and
	// the daemon's budget. Remove removes it all the same, and its output is
	// trimmed as that of others. A pin outlives the death of every role and of
	// the machine.
	Pin(ctx context.Context, pinned bool) error
	// Wait returns when the condition holds or the process has exited,
	// whichever is first.
	Wait(ctx context.Context, until Until) (WaitResult, error)
	// Remove forgets a finished process and frees its output. ErrRunning; if the
	// process has exited, and others of its tree run or its output has not ended, an
	// UnfinishedError says what is left. Who only may be of the tree, because nothing
	// tells of which one it is, holds no removal up.
	Remove(ctx context.Context) error
}

// Selector finds one process. Exactly one field is set.
type Selector struct {
	ID  ID
	PID int    // the newest process that has this pid
	Tag string // the newest process with this tag
	// Name finds the newest process with this name.
	Name string
	// Any is for people: id, unique prefix of an id (at least 4 bytes), name,
	// tag or pid, tried in this order.
	Any string
}

// Filter selects processes for List. The zero value selects all.
type Filter struct {
	Live   bool              // only those that have not exited
	Tag    string            // only with this tag
	Labels map[string]string // only with all these labels
}

// Matches reports whether the filter selects a process with this spec, live or
// not.
func (f *Filter) Matches(spec *Spec, live bool) bool {
	if f.Live && !live || f.Tag != "" && spec.Tag != f.Tag {
		return false
	}
	for k, v := range f.Labels {
		if got, ok := spec.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// KillResult is what Kill did.
type KillResult struct {
	// Verified: the kernel said that no process is left, in the process's cgroup
	// and among those that have left it. Without a cgroup of the process's own it
	// is never set: a walk of the process table may miss some.
	Verified  bool
	Survivors []int // pids of those in the tree that did not die
	// Strays are pids of processes that may have been in the tree: they have left
	// cgroup, session and parents behind, and nothing shows where they belonged.
	// They are not killed.
	Strays []int
	// Names are those of survivors and strays by pid, as ps has them, where they
	// are known.
	Names map[int]string
}

// Until is a condition for Wait; the first field that is set counts. The zero
// value waits for the exit.
type Until struct {
	// Quiet: no output for this long.
	Quiet time.Duration
	// Match: a line of output, from offset From on, matches this RE2 regular
	// expression. It is searched as output arrives, in windows of at most
	// 64 KiB.
	Match string
	From  [4]int64
	// Port: something in the tree listens on this TCP port.
	Port int
	// Input: the tree reads from its stdin or terminal and nothing was
	// written to it.
	Input bool
	// TreeGone: no descendant is left.
	TreeGone bool
	// EOF: exited, and each stream reached its end.
	EOF bool
}

// WaitResult says which condition ended a Wait.
type WaitResult struct {
	// Exit is set if the process has exited, whatever was waited for.
	Exit *Exit
	// Met: the condition asked for holds. With Exit set and Met false the
	// process ended before it did.
	Met bool
	// Match of Until.Match: the text, at most 4 KiB, and where.
	Match  string
	Stream Stream
	Offset int64
	// Listening addresses found for Until.Port.
	Listening []Listener
	// Input observed for Until.Input.
	Input InputState
	// Streams are the output streams as they were when Wait returned.
	Streams []StreamInfo
}

// Listener is a listening TCP socket of the tree.
type Listener struct {
	Address string // host:port
	PID     int
}

// PortLister is a [Process] that can say on what its tree listens: an ability that not each
// has.
type PortLister interface {
	// Listening returns the TCP sockets on which the process and its descendants listen;
	// none once it has exited.
	Listening(ctx context.Context) ([]Listener, error)
}

// InputState is the observation behind "waiting for input".
type InputState uint8

const (
	InputNone     InputState = iota
	InputLikely              // polls a terminal or stdin, as line editors and dev servers do
	InputCertain             // blocked in read(2) on its stdin or terminal
	InputPassword            // blocked in read(2) on a terminal with echo off
)

func (s InputState) String() string {
	switch s {
	case InputNone:
		return "none"
	case InputLikely:
		return "likely"
	case InputCertain:
		return "certain"
	case InputPassword:
		return "password"
	}
	return "unknown"
}
