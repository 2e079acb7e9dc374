package driver

import (
	"cmp"
	"context"
	"net"
	"sort"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/process"
)

// Driver creates sandboxes and finds them again. All methods may be called
// concurrently. A context cancels the call, never the sandbox.
type Driver interface {
	// Create creates a sandbox and returns when programs can run in it. Errors:
	// *InvalidError, *UnsupportedError, ErrExists, ErrLimit, ErrNotFound for an unknown
	// snapshot or template.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Get finds a sandbox by its ID or name. ErrNotFound.
	Get(ctx context.Context, key string) (Sandbox, error)
	// List returns all sandboxes, oldest first.
	List(ctx context.Context) ([]Info, error)
	// Capabilities returns the abilities of the driver on this machine.
	Capabilities() Capabilities
}

// Sandbox is a handle to one sandbox. It holds no connection; any number of handles may
// exist for one sandbox.
type Sandbox interface {
	// Info returns the current state. After Destroy the error is ErrNotFound.
	Info(ctx context.Context) (Info, error)
	// Update changes what can be changed, in whatever state the sandbox is. Errors:
	// *InvalidError, *UnsupportedError, ErrExists, ErrNotFound.
	Update(ctx context.Context, c Change) (Info, error)
	Controller
	Access
}

// Controller controls the life cycle of a sandbox. The methods return when the work is
// done; it is safe to repeat them.
type Controller interface {
	// Start starts a stopped sandbox again, with its files, and resumes a paused one.
	Start(ctx context.Context) error
	// Stop ends all processes of the sandbox and keeps its files, unless it is
	// disposable.
	Stop(ctx context.Context) error
	// Destroy ends all processes and removes everything that belongs to the sandbox.
	Destroy(ctx context.Context) error
}

// Access gives access to the inside of a sandbox. Its use counts as activity for
// Spec.IdleTTL, except methods that only look (User, and List and Watch of the
// processes).
type Access interface {
	// Processes manages only the processes of this sandbox. A process started here runs
	// inside; if its spec has no user, working directory or environment, it gets the
	// sandbox's.
	Processes() process.Manager
	// User finds an account inside: a name, "uid" or "uid:gid"; "" is the sandbox's
	// own. Home is where the user's relative paths start. files.ErrUnknownUser.
	User(name string) (files.User, error)
	// Files does file operations inside, for a user as in User. Relative paths start at
	// the user's home; the empty path means dir, or the home if dir is empty. If it is
	// impossible to act for that user, the error is files.ErrPermission.
	Files(user, dir string) (Files, error)
	// Dial connects to a TCP port that a process inside listens on.
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// Capabilities lists the layers of isolation that really exist.
type Capabilities struct {
	Name string // "host"
	// Layers lists the layers that are active in each isolated sandbox: "pid", "mount",
	// "network", "user", "seccomp", "landlock"; and those that can be requested: "freeze",
	// "memory", "tasks", "cpu", "outgoing" (NetworkOwn leads out). None: nothing is
	// enforced.
	Layers []string
	// Missing lists layers that this machine does not allow, each with its reason:
	// "memory: no controller".
	Missing []string
	// Way in which isolated sandboxes are made, in a line: "ids=65536 owners=idmap …".
	Way string
	// Snapshots: the driver implements Snapshotter.
	Snapshots bool
}

// SortInfos sorts sandboxes: the oldest first.
func SortInfos(all []Info) {
	sort.Slice(all, func(i, j int) bool { // slices.SortFunc is compiled for each type, which makes the program larger
		a, b := &all[i], &all[j]
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) < 0
	})
}
