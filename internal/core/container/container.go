package container

import (
	"context"
	"fmt"
	"time"
)

// ID names a container: IDLen letters and digits as NewID makes them, or, as versions of tend
// until November 2026 made them, a UUID in its usual form, lower case.
type ID string

// Base is the lowest layer.
type Base uint8

const (
	BaseHost Base = iota // what of this machine is shown: see [Programs]
	BaseNone             // nothing: the last layer is a whole root
)

// Net says which network a container has.
type Net uint8

const (
	NetNone Net = iota // no interface at all
	NetOwn             // as NetNone until Engine.Network makes one
	NetHost            // the machine's
)

// Limits on what a [Spec] may hold.
const (
	MaxLayers = 256
	MaxHide   = 256
	MaxBinds  = 64
	MaxCopies = 16
	MaxPath   = 4095 // bytes
)

// Spec says what to make.
type Spec struct {
	ID ID
	// Hostname inside: letters, digits, '-' and '.', at most 64 bytes. Empty:
	// "sandbox".
	Hostname string
	// Dir is a directory of the caller's on this machine, which holds two others: up takes
	// what the container writes, and wk is the kernel's. The two are on one
	// filesystem that an overlay may write to, and no other container uses them.
	Dir string
	// Disk is a file with an ext4 filesystem, which takes what the container writes in the place
	// of Dir: the size of that filesystem is the limit. up and wk are made in it. "": Dir
	// does, without a limit.
	Disk string
	// Layers are directories, topmost first, which must not change as long as a container uses
	// them. At most MaxLayers.
	Layers []string
	Base   Base
	// Hide are paths of this machine that are hidden also where they lie in what is shown,
	// and Show are directories that are shown beside [Programs] and [Packages], at most
	// MaxShow. Only with BaseHost.
	Hide  []string
	Show  []string
	Binds []Bind
	// Copies are directories of this machine that programs inside may change, and that stay as
	// they are. Bind targets may be in them.
	Copies []Copy
	// UIDBase is the id outside of root inside; as many as IDs belong to the container. 0:
	// the only id is that of the keeper's user, for a keeper that is not root.
	UIDBase uint32
	Net     Net
	Limits  Limits
	Harden  Harden
	// Volatile: what the container writes is not forced to the disk when the container ends. A
	// container that ends otherwise waits for all that the machine has to write.
	Volatile bool
}

// IDs is how many user and group ids a container has.
const IDs = 1 << 16

// Bind shows a directory or file of this machine inside. The ids of its files are the
// same on both sides, devices and setuid bits have no effect inside, and mounts below
// Source are not visible.
type Bind struct {
	Source, Target string // absolute; Target is made if it is not there
	ReadOnly       bool
	Disk           bool // Source is a file with an ext4 filesystem, as Spec.Disk, which is shown
}

// Copy shows a directory of this machine inside, with an overlay of its own: what is written
// below Target goes to Dir/up, and Source never changes. The ids of its files are the same on both
// sides, and mounts below Source are not visible. What changes in Source meanwhile may be seen or not.
type Copy struct {
	Source, Target string // absolute, without links, commas, colons and backslashes
}

// Limits of all processes in a container together; 0 is no limit.
type Limits struct {
	Memory int64   // bytes, 1 MiB and more
	Tasks  int64   // processes and threads, 2 and more
	CPUs   float64 // processors, 0.01 and more
}

// Harden is what programs inside are denied beside what the namespaces keep from
// them. Pid 1 runs nothing of the caller's.
type Harden struct {
	// Caps are the capabilities that programs keep, as a bit each (capabilities(7)); a
	// program of another user than root has none either way.
	Caps     uint64
	Seccomp  bool // no system calls that are of use for an escape alone
	Landlock bool // no abstract sockets of the machine with NetHost; namespaces see to it otherwise
	Setuid   bool // programs may get rights by exec: sudo works
}

// WayVariable names parts of the way in which containers are made, for tests. A part that is named is
// used, or no container can be made.
const WayVariable = "TEND_SANDBOX_WAY"

// WayPlain is in Can.Way where files have on the disk the ids that a container has outside, which its layers would have too.
const WayPlain = "upper=plain"

// WaySharedProc is in Can.Way where containers would have the /proc of tend itself, and NoProc says why they
// have none of their own, and what to do.
const (
	WaySharedProc = "proc=shared"
	NoProc        = "parts of /proc are hidden from tend, as in a container, and then the kernel gives a sandbox none: run the container with " +
		"--security-opt systempaths=unconfined (podman: unmask=ALL; Kubernetes: procMount: Unmasked), or use tend serve --sandbox-proc shared"
)

// MayNotMount begins the reasons of what a keeper that is root lacks where it may not mount; InContainer mends it.
const MayNotMount = "tend is root and may not mount: "

// NoCopies is why there is no LayerCopies then.
const NoCopies = MayNotMount + "no snapshots, no forks with files, no template builds"

// Options of a container: Unfiltered takes from it what forbids system calls, and InContainer is what containers
// of a keeper that is root need.
const (
	Unfiltered  = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
	InContainer = "in a container: docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN " + Unfiltered + " -v tend:/var/lib/tend"
)

// Mode says how a container is kept from the machine.
type Mode uint8

const (
	ModeUser     Mode = iota + 1 // root inside is an id of nobody outside
	ModeRootless                 // root inside is the keeper's own user
)

func (m Mode) String() string {
	switch m {
	case ModeUser:
		return "user"
	case ModeRootless:
		return "rootless"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Info is the state of a container.
type Info struct {
	ID ID
	// PID is that of pid 1 on this machine, and Started its start time in clock ticks
	// since the machine's boot (/proc/PID/stat, field 22): both together are one
	// process for ever.
	PID     int
	Started int64
	Mode    Mode
	// Active are the layers of isolation that this container has: words of [Can].
	Active []string
	// Group is the container's cgroup v2 directory; "": it has none.
	Group string
	// Frozen: all programs are frozen. Network: it has its own network, created by
	// Engine.Network.
	Frozen, Network bool
}

// Usage is what all that ran in a container has used. 0 where the machine does not
// say.
type Usage struct {
	CPU                time.Duration
	Memory, MemoryPeak int64 // bytes
	Tasks              int64
	OOMKills           int64 // programs that were ended for want of memory
}

// Words for layers of isolation, as in driver.Capabilities.
const (
	LayerPID      = "pid"      // its own processes
	LayerMount    = "mount"    // its own files
	LayerUser     = "user"     // its own users
	LayerRootless = "rootless" // in its place: one id, which is the keeper's user outside
	LayerIDs      = "ids"      // ids outside that no other container has: any Spec.UIDBase is as good
	LayerNetwork  = "network"  // its own network, or none
	LayerBase     = "base"     // BaseHost works
	LayerFreeze   = "freeze"   // Engine.Freeze works
	LayerMemory   = "memory"   // Limits.Memory
	LayerTasks    = "tasks"    // Limits.Tasks
	LayerCPU      = "cpu"      // Limits.CPUs
	LayerDisk     = "disk"     // Spec.Disk
	LayerSeccomp  = "seccomp"  // Harden.Seccomp
	LayerLandlock = "landlock" // Harden.Landlock
	LayerCopies   = "copies"   // layers of what is written inside; only told where it is missing
)

// Can is what an Engine can do here.
type Can struct {
	Mode    Mode     // 0: no container can be made
	Layers  []string // words of Layer…
	Missing []Missing
	Way     string // in which containers are made: "ids=65536 owners=idmap …"
}

// Add adds a layer, or why it cannot be had.
func (c *Can) Add(layer string, why error) {
	if why != nil {
		c.Missing = append(c.Missing, Missing{layer, why.Error()})
	} else {
		c.Layers = append(c.Layers, layer)
	}
}

// Missing is a layer that cannot be had, and why. The layer "" stands for containers as a
// whole.
type Missing struct{ Layer, Reason string }

// Engine creates and ends containers. All methods may be called concurrently. A call whose
// answer was lost may be repeated. Errors, beside those named: process.ErrUnavailable
// while there is no keeper, process.ErrUnsupported with what is missing here.
type Engine interface {
	// Can says what can be had. A keeper that knows no containers is an answer, not an
	// error.
	Can(ctx context.Context) (Can, error)
	// NewID returns a random ID in a form that the keeper takes which answered last.
	NewID() ID
	// Make makes a container, or finds the one that an equal Spec made. Errors:
	// *process.InvalidError; ErrExists: the container is there with another Spec;
	// process.ErrUnsupported: a layer or limit that the Spec asks for is missing, and
	// nothing was made; process.ErrLimit.
	Make(ctx context.Context, spec Spec) (Info, error)
	// Network makes the container's own network, if it has none yet: one in which nothing
	// is configured. Errors: ErrNotFound, ErrEnded, *process.InvalidError for
	// a container that is not NetOwn.
	Network(ctx context.Context, id ID) (Info, error)
	// Freeze freezes or thaws all programs inside, and returns when this is done. Errors:
	// ErrNotFound, ErrEnded.
	Freeze(ctx context.Context, id ID, frozen bool) error
	// Limit changes the limits; 0 lifts one. Errors: ErrNotFound, ErrEnded,
	// *process.InvalidError.
	Limit(ctx context.Context, id ID, l Limits) error
	// Usage errors: ErrNotFound.
	Usage(ctx context.Context, id ID) (Usage, error)
	// End ends all processes inside, and returns when only the files of the container are left.
	// If there is no such container, it does nothing.
	End(ctx context.Context, id ID) error
	// List returns all containers whose pid 1 lives, in no order.
	List(ctx context.Context) ([]Info, error)
}
