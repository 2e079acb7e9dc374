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
	// Watch delivers the life cycle events (no output) of all processes from now on:
	// EventStarted, EventExited, EventTreeGone, EventRemoved. A watcher that lags more
	// than 4,096 events behind gets ErrLagged and must List again.
	Watch(ctx context.Context) (Watcher, error)
}

// Watcher delivers life cycle events, like a [Reader] without output.
type Watcher interface {
	Next() (ev Event, ok bool, err error)
	Ready() <-chan struct{}
	Close() error
}

// Process is a handle to one process. It holds no connection and no lock; any
// number may exist for one process.
type Process interface {
	ID() ID
	// Info returns the current state. After the removal the error is ErrNotFound.
	Info(ctx context.Context) (Info, error)
	// Read opens a reader. Errors: ErrOffset, *InvalidError, ErrNotFound.
	Read(ctx context.Context, opts ReadOptions) (Reader, error)
	// Write writes to stdin or the terminal.
	Write(ctx context.Context, in Input) (Accepted, error)
	Controller
}

type briefKey struct{}

// Brief returns a context in which Info need not find out whether a running process is
// stopped: State is then Running or Exited. Finding out means reading /proc for each
// process, which is most of Info's cost.
func Brief(ctx context.Context) context.Context { return context.WithValue(ctx, briefKey{}, true) }

// IsBrief reports whether ctx comes from Brief.
func IsBrief(ctx context.Context) bool { return ctx.Value(briefKey{}) != nil }

type envOfKey struct{}

// EnvOf returns a context in which Start gives a process the hidden variables of another
// one in the same place, too, as long as that is kept: it is started again.
func EnvOf(ctx context.Context, id ID) context.Context { return context.WithValue(ctx, envOfKey{}, id) }

// IsEnvOf returns the ID that ctx has from EnvOf, else "".
func IsEnvOf(ctx context.Context) ID {
	id, _ := ctx.Value(envOfKey{}).(ID)
	return id
}

// Controller acts on a running process.
type Controller interface {
	// Signal sends sig. ErrExited if no process is left to receive it.
	Signal(ctx context.Context, sig int, scope Scope) error
	// Kill ends the whole tree with SIGKILL. It returns when the kernel reports that the
	// tree is empty, or with the survivors (processes in uninterruptible sleep). On a
	// finished process it kills the rest of the tree; if nothing is left, it returns
	// ErrExited.
	Kill(ctx context.Context) (KillResult, error)
	// Resize changes the size of the terminal and returns the previous size; zero if
	// unknown. Without a terminal the error is ErrNoPTY.
	Resize(ctx context.Context, r Resize) (before Size, err error)
	// Trim frees output before the offset, for Retention.Policy Block.
	Trim(ctx context.Context, s Stream, before int64) error
	// Pin decides whether a process is kept after it has finished, beyond its TTL and the
	// daemon's budget. Remove still removes it, and its output is trimmed like that of
	// other processes. A pin survives the death of every role and a crash of the machine.
	Pin(ctx context.Context, pinned bool) error
	// Wait returns when the condition holds or the process has exited, whichever comes
	// first.
	Wait(ctx context.Context, until Until) (WaitResult, error)
	// Remove removes a finished process and its output. If the process still runs, the
	// error is ErrRunning. If it has exited, but other processes of its tree run or its
	// output has not ended, an UnfinishedError says what is left. A process that only may
	// belong to the tree does not prevent the removal.
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

// KillResult is the result of Kill.
type KillResult struct {
	// Verified: the kernel confirmed that no process is left, in the process's cgroup and
	// among those that have left it. If the process does not have its own cgroup, it is
	// never set, because a walk of the process table may miss processes.
	Verified  bool
	Survivors []int // pids of those in the tree that did not die
	// Strays are pids of processes that may have belonged to the tree: they have left
	// cgroup, session and parents, so their origin is unknown. They are not killed.
	Strays []int
	// Names are the names of survivors and strays by pid, as in ps, if known.
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
	// Port: a process of the tree listens on this TCP port.
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
	// Exit is set if the process has exited, whatever the condition was.
	Exit *Exit
	// Met: the requested condition holds. If Exit is set and Met is false, the process
	// ended before it held.
	Met bool
	// Match is the text that matched Until.Match, at most 4 KiB, with its stream and
	// offset.
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

// PortLister is an optional ability of a [Process]: it lists the ports on which its
// tree listens.
type PortLister interface {
	// Listening returns the TCP sockets on which the process and its descendants listen;
	// none once it has exited.
	Listening(ctx context.Context) ([]Listener, error)
}

// InputState says how certain it is that a process waits for input.
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
