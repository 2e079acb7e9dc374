package driver

import (
	"fmt"
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// ID identifies one sandbox or snapshot and is never reused: 20 letters and digits, or
// a UUID in its usual form if it was created before the end of November 2026.
type ID string

// NewID returns a random ID.
func NewID() ID { return ID(container.NewID()) }

// Limits on what a [Spec] may hold.
const (
	MaxName     = 128     // bytes
	MaxEnv      = 4096    // variables
	MaxEnvBytes = 1 << 20 // names and values together
	MaxTTL      = 10 * 365 * 24 * time.Hour
	MaxMetadata = 64       // entries
	MaxValue    = 64 << 10 // bytes of one value of Metadata
	MaxNotes    = 64       // entries; names and values as those of Metadata
	MaxShares   = 32
	MaxRules    = 256  // entries of Network.Allow, and of Network.Deny
	MaxPath     = 4095 // bytes of a path
	// MaxImageName is the most bytes of the name of an image.
	MaxImageName = 512
)

// Spec says what to create. The zero value is a sandbox with all defaults.
type Spec struct {
	// Name is unique among the sandboxes. Empty: the driver generates one. 1 to MaxName
	// letters, digits, '.', '_' or '-', the first a letter or digit. It must not have the
	// form of an ID, because an ID must find only its own sandbox.
	Name string
	// Snapshot is the snapshot whose files it starts with: its ID, its name, or "name:tag".
	Snapshot string
	// Template is the template to create it from: a name, an alias, "name:tag" or an ID.
	// Empty: the driver's default. It must be empty with a Snapshot.
	Template string
	// Image is the image whose files it starts with: an ID or a name ([Imager]). It must be
	// empty with a Snapshot or a Template.
	Image string
	// Isolation from this machine. The default is the driver's.
	Isolation Isolation
	Run       RunConfig
	// Env overrides Run.Env, also when that is changed later.
	Env map[string]string
	// Disposable: Stop removes the files of the sandbox's own directory.
	Disposable bool
	// IdleTTL stops the sandbox when nobody has used it and no process ran for
	// this long; DeleteAfterStop destroys it this long after it was stopped.
	// 0: never.
	IdleTTL, DeleteAfterStop time.Duration
	// Deadline is when the action AtDeadline is applied, if the sandbox is ready then;
	// zero: never. It is stored on disk. If it passes while no server runs, the next start
	// of [Runner].Run applies the action. If it passes while the sandbox is paused or
	// stopped, nothing happens, and the next Resume or Start removes the deadline.
	Deadline   time.Time
	AtDeadline Action
	// FilesAlone: ActionPause keeps the files, and ends the processes.
	FilesAlone bool
	// Wake: a request for the sandbox resumes it while it is paused. The driver only
	// stores this setting; the face that receives the request applies it.
	Wake bool
	// Size is what the caller requests; Info.Size is what the driver enforces.
	Size Size
	// Network that programs inside see, and Shares: directories of this machine.
	Network Network
	Shares  []Share
	// Volumes ([Volumer]) are there inside, also in copies by a Fork, until it is destroyed.
	Volumes []VolumeMount
	// E2BTemplate, if it is set, is a template's ID in E2B's API. Programs inside are told
	// which sandbox theirs is, and made from which template, as in E2B's sandboxes: each
	// process by variables ([Told]), and all by files below /run/e2b, where a sandbox has
	// files of its own.
	E2BTemplate string
	// Metadata is kept for the caller.
	Metadata map[string]string
	// Notes are kept for the faces ("e2b.template"). A face neither shows them to callers
	// nor accepts them from callers.
	Notes map[string]string
}

// Told are the variables by which programs of a sandbox know it, if its Spec has an
// E2BTemplate. A process that brings one of that name has its own.
func Told(id ID, e2bTemplate string) map[string]string {
	if e2bTemplate == "" {
		return nil
	}
	return map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": string(id), "E2B_TEMPLATE_ID": e2bTemplate}
}

// Isolation of a sandbox from the machine.
type Isolation uint8

const (
	IsolationDefault Isolation = iota // the driver's
	IsolationNone                     // programs see the machine itself
	IsolationFull                     // all layers of Capabilities
)

func (i Isolation) String() string {
	return word("isolation", uint8(i), "default", "none", "full")
}

// Action on a sandbox whose deadline has passed.
type Action uint8

const (
	ActionDestroy Action = iota
	// ActionPause pauses it with its processes, or without them if FilesAlone is set. A
	// driver without [Pauser] stops it.
	ActionPause
)

func (a Action) String() string { return word("action", uint8(a), "destroy", "pause") }

// NetworkMode is what programs inside can reach.
type NetworkMode uint8

const (
	NetworkDefault NetworkMode = iota // the driver's
	NetworkNone                       // only each other
	NetworkHost                       // the machine, and everything that it reaches
	NetworkOwn                        // addresses that Allow and Deny permit; never the machine
)

func (m NetworkMode) String() string {
	return word("network", uint8(m), "default", "none", "host", "own")
}

// Network of a sandbox.
type Network struct {
	Mode NetworkMode
	// Allow and Deny are for outgoing connections of NetworkOwn: a host name, "*." and a
	// domain, an address or a CIDR, each with ":port" or without, or "~" and an RE2
	// expression that matches in host names. Allow takes precedence; a destination that
	// neither names is allowed if Allow is empty. As in E2B, with a Deny of everything
	// ("0.0.0.0/0") only the destinations in Allow remain.
	Allow, Deny []string
	// Public: ports inside are served to callers without a token of the sandbox.
	Public bool
}

// Share is a directory of this machine that is visible inside.
type Share struct {
	// Source on this machine and Target inside, absolute. Target "": the Source.
	Source, Target string
	ReadOnly       bool
	// Copy: programs inside may change it, and what they change is the sandbox's alone. Source
	// stays as it is; what somebody else changes there meanwhile may be seen inside or not.
	Copy bool
}

// RunConfig has the defaults for processes of a sandbox.
type RunConfig struct {
	// User name; empty: the driver's default.
	User string
	// Dir is the working directory, absolute; empty: the sandbox's own.
	Dir string
	Env map[string]string
}

// Size of a sandbox; 0 means that no limit is requested.
type Size struct {
	CPUs   float64
	Memory int64 // bytes
	Disk   int64 // bytes
	Tasks  int64 // processes and threads together
}

// Beyond returns the limits of s that the driver does not enforce, given the limits got
// that it does: "cpus", "memory", "disk", "tasks".
func (s Size) Beyond(got Size) []string {
	var names []string
	for _, l := range []struct {
		missing bool
		name    string
	}{
		{s.CPUs != 0 && got.CPUs == 0, "cpus"},
		{s.Memory != 0 && got.Memory == 0, "memory"},
		{s.Disk != 0 && got.Disk == 0, "disk"},
		{s.Tasks != 0 && got.Tasks == 0, "tasks"},
	} {
		if l.missing {
			names = append(names, l.name)
		}
	}
	return names
}

// State of a sandbox.
type State uint8

const (
	Starting State = iota
	Ready
	Stopped
	Failed
	Paused // its processes are suspended ([Pauser])
)

func (s State) String() string {
	return word("state", uint8(s), "starting", "ready", "stopped", "failed", "paused")
}

func word(kind string, i uint8, words ...string) string {
	if int(i) < len(words) {
		return words[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// Info is the state of a sandbox at one moment.
type Info struct {
	ID     ID
	Name   string
	State  State
	Reason string // of Failed
	Run    RunConfig
	// Env goes over Run.Env.
	Env        map[string]string
	Disposable bool
	// Dir is the working directory where Run.Dir names none.
	Dir      string
	Snapshot string
	// Template as it was requested, and the ID that this name had at the creation.
	Template, TemplateID     string
	Image                    string    // its ID
	Isolation                Isolation // never IsolationDefault
	IdleTTL, DeleteAfterStop time.Duration
	Deadline                 time.Time // zero: none
	AtDeadline               Action
	FilesAlone               bool
	Wake                     bool
	Size                     Size    // enforced; 0 where nothing is
	Network                  Network // Mode is never NetworkDefault
	Shares                   []Share
	Volumes                  []VolumeMount
	E2BTemplate              string
	Created, Updated         time.Time
	StoppedAt                time.Time // zero unless Stopped
	PausedAt                 time.Time // zero unless Paused
	Metadata                 map[string]string
	Notes                    map[string]string
	// Copied of ToCopy bytes of its files are there while they are copied, for a snapshot or a fork. Both are
	// 0 while none are: where nothing runs in it they are moved. ToCopy is an estimate; 0: not known yet.
	Copied, ToCopy int64
}

// Change says what to change; nil fields change nothing.
type Change struct {
	Name                     *string
	IdleTTL, DeleteAfterStop *time.Duration
	// Deadline replaces the deadline; the zero time removes it. Extend moves it only
	// to a later time, and does nothing where there is none. One of them at most.
	Deadline, Extend *time.Time
	AtDeadline       *Action
	// Network replaces the rules of a sandbox; its Mode must be the sandbox's or
	// NetworkDefault.
	Network *Network
	// Run replaces the fields that are set in it; Env is merged key by key.
	Run *RunConfig
	// Metadata is merged key by key.
	Metadata map[string]string
	// Notes are merged key by key; an empty value removes the note.
	Notes map[string]string
}

// SnapshotSpec describes a snapshot to create.
type SnapshotSpec struct {
	Name string
	// Tag lets several snapshots have one name: each is found by "name:tag", and one that
	// is made with a tag takes it from the one that had it. Empty: the name is the
	// snapshot's alone. 1 to MaxName letters, digits, '.', '_' or '-', the first no '.'
	// and no '-'.
	Tag string
	Run RunConfig
	// MaxBytes is how many bytes an image may have of which it is made; 0: as many as there is
	// room for.
	MaxBytes int64
}

// LatestTag is the tag that a name without one means first.
const LatestTag = "latest"

// Snapshot is the state of a snapshot.
type Snapshot struct {
	ID      ID
	Name    string
	Tag     string // "": it has none, or has it no more
	State   State
	Reason  string
	Sandbox ID
	Bytes   int64 // on the disk, of what the sandbox wrote; 0 until it is counted, some seconds after the snapshot
	Created time.Time
}
