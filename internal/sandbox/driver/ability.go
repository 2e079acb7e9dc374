package driver

import (
	"context"
	"time"
)

// The optional abilities of a [Driver]. A caller asks for one by a type assertion. A
// driver of several kinds of sandboxes has all of them and refuses what one kind
// cannot do with [ErrUnsupported].

// Runner does work in the background, such as ending sandboxes whose time is over.
type Runner interface {
	// Run works until ctx ends, and then returns nil. An error ends the server.
	Run(ctx context.Context) error
}

// Pauser is an optional ability of a Driver: it suspends the processes of a sandbox.
type Pauser interface {
	// Pause suspends a sandbox. A start in it then returns ErrPaused; its files can be
	// read if it was paused with its memory. Errors: ErrPaused if it is paused already,
	// ErrStopped, ErrNotFound.
	Pause(ctx context.Context, id ID, spec PauseSpec) error
	// Resume resumes it; a sandbox that was paused without its memory is started, as by
	// Controller.Start. If it is ready, Resume does nothing.
	Resume(ctx context.Context, id ID) error
}

// PauseSpec describes a pause.
type PauseSpec struct {
	// Memory: the processes stay in memory, until the machine is restarted. Without it
	// they end and the files stay: it is a Stop with the State Paused.
	Memory bool
}

// Snapshotter saves the files of sandboxes.
type Snapshotter interface {
	// Snapshot saves the files of a sandbox under a name.
	Snapshot(ctx context.Context, sandbox ID, spec SnapshotSpec) (Snapshot, error)
	// GetSnapshot finds a snapshot by its ID, "name:tag" or name. A name means the tag
	// LatestTag, and else the snapshot without a tag. ErrNotFound.
	GetSnapshot(ctx context.Context, key string) (Snapshot, error)
	// Snapshots returns all, oldest first.
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// DeleteSnapshot removes it permanently. Errors: ErrNotFound, ErrInUse.
	DeleteSnapshot(ctx context.Context, key string) error
}

// ImageSnapshotter is an optional ability of a [Snapshotter]: it makes snapshots of images.
type ImageSnapshotter interface {
	// SnapshotImage begins to make a snapshot of an image, which is fetched if it is not here,
	// and returns at once; GetSnapshot by its ID tells when it is Ready, or why it is Failed.
	// What Run does not say is as in the image. Only then it takes its tag. Errors:
	// *InvalidError, *UnsupportedError, ErrExists, ErrLimit.
	SnapshotImage(ctx context.Context, p Pull, spec SnapshotSpec) (Snapshot, error)
}

// Forker makes copies of a sandbox.
type Forker interface {
	// Fork creates sandboxes with the current files of a sandbox and with its Spec, except
	// name and deadline. Processes are not copied. There is one result for each requested
	// copy; an error of Fork itself means that there are none.
	Fork(ctx context.Context, id ID, spec ForkSpec) ([]ForkResult, error)
}

// Differ tells what programs in a sandbox have changed of a share that is a copy.
type Differ interface {
	// Changes returns what was changed in a directory inside, or below it, in lexical order, a
	// directory before its entries. It does not look into directories of the names in skip, and
	// says nothing of them. Errors: ErrNotFound, ErrLimit if they are more than most.
	Changes(ctx context.Context, id ID, dir string, skip []string, most int) ([]FileChange, error)
}

// FileChange is what has become of a path.
type FileChange struct {
	Path string // below the directory, without a slash at its beginning
	Kind FileChangeKind
}

// FileChangeKind says what that is.
type FileChangeKind string

const (
	ChangeGone    FileChangeKind = "gone"    // it was removed with its content; what has replaced it follows
	ChangeFile    FileChangeKind = "file"    // a file that is new, or has another content, mode or owner
	ChangeDir     FileChangeKind = "dir"     // a directory that is new, or in which something has changed
	ChangeSpecial FileChangeKind = "special" // a link, or another kind of file
)

// MaxChanges bounds those that Changes returns.
const MaxChanges = 10_000

// MaxForks is the maximum number of copies of one Fork.
const MaxForks = 100

// ForkSpec describes the copies.
type ForkSpec struct {
	Count    int       // 0 is 1; at most MaxForks
	Deadline time.Time // zero: none
}

// ForkResult is one copy, or the reason why it is missing.
type ForkResult struct {
	Sandbox Sandbox
	Err     error
}

// Meter measures sandboxes.
type Meter interface {
	// Metrics returns the samples of a period, oldest first. A zero from or to is no
	// bound. Without bounds there is at least one sample, of now; samples are kept for
	// some minutes.
	Metrics(ctx context.Context, id ID, from, to time.Time) ([]Metric, error)
}

// Metric is one sample. A total is what the sandbox may use: its limit, or the
// machine's total.
type Metric struct {
	Time                        time.Time
	CPUs                        float64 // that it may use
	CPUPercent                  float64 // used; 100 is one CPU
	MemUsed, MemCache, MemTotal int64   // bytes
	DiskUsed, DiskTotal         int64   // bytes
	Tasks                       int64   // processes and threads
	OOMKills                    int64   // since the start
	// Received and Sent are the bytes of its connections to the outside: since this server has
	// been its way out, and only with Counted. Requests to its ports are not among them.
	Received, Sent int64
	Counted        bool
}

// LogEntry is one line of the log of a build.
type LogEntry struct {
	Time    time.Time
	Level   string // "debug", "info", "warn", "error"
	Message string
	Fields  map[string]string
}
