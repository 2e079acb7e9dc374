package driver

import (
	"context"
	"net"

	"github.com/tend-run/tend/files"
	"github.com/tend-run/tend/process"
)

// Driver creates sandboxes and finds them again. All methods may be called
// concurrently. A context cancels the call, never the sandbox.
type Driver interface {
	// Create makes a sandbox and returns when programs can run in it. Errors:
	// *InvalidError, *UnsupportedError, ErrExists, ErrLimit, ErrNotFound for a
	// snapshot or template that there is not.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Get finds a sandbox by its ID or name. ErrNotFound.
	Get(ctx context.Context, key string) (Sandbox, error)
	// List returns all sandboxes, oldest first.
	List(ctx context.Context) ([]Info, error)
	// Capabilities returns what the driver can do on this machine.
	Capabilities() Capabilities
}

// Sandbox is a handle to one sandbox. It holds no connection; any number may
// exist for one sandbox.
type Sandbox interface {
	// Info returns what is known now. ErrNotFound once it was destroyed.
	Info(ctx context.Context) (Info, error)
	// Update changes what can be changed, in whatever state the sandbox is. Errors:
	// *InvalidError, *UnsupportedError, ErrExists, ErrNotFound.
	Update(ctx context.Context, c Change) (Info, error)
	Controller
	Access
}

// Controller begins and ends the life of a sandbox. The methods return when it
// is done; repeating them is no error.
type Controller interface {
	// Start makes a stopped sandbox ready again, with its files, and resumes one that
	// is paused.
	Start(ctx context.Context) error
	// Stop ends all processes of the sandbox and keeps its files, unless it is
	// disposable.
	Stop(ctx context.Context) error
	// Destroy ends all processes and removes all that belongs to the sandbox.
	Destroy(ctx context.Context) error
}

// Access reaches into a sandbox. Using it counts as activity for Spec.IdleTTL; to
// look at what there is (User, and List and Watch of the processes) does not.
type Access interface {
	// Processes are the processes of this sandbox alone. A process that is started
	// here runs inside, with the sandbox's user, working directory and environment
	// where its spec has none.
	Processes() process.Manager
	// User finds an account inside: a name, "uid" or "uid:gid"; "" is the sandbox's
	// own. Home is where the user's relative paths start. files.ErrUnknownUser.
	User(name string) (files.User, error)
	// Files does file operations inside, for a user as in User. Relative paths start
	// at the user's home; the empty path means dir, and the home if dir is empty.
	// files.ErrPermission: nobody can act for that user.
	Files(user, dir string) (Files, error)
	// Dial connects to a TCP port that a process inside listens on.
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// Capabilities say which layers of isolation are really there.
type Capabilities struct {
	Name string // "host"
	// Layers that are active in each sandbox that is isolated, as words: "pid",
	// "mount", "network", "user", "seccomp", "landlock"; and those that can be asked
	// for: "freeze", "memory", "tasks", "cpu", "outgoing" (NetworkOwn leads out). None:
	// nothing is enforced.
	Layers []string
	// Missing are layers that this machine does not allow, each with its reason:
	// "memory: no controller".
	Missing []string
	// Snapshots: the driver implements Snapshotter.
	Snapshots bool
}
