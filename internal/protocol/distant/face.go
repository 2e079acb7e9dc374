package distant

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// protocolVersion is sent to clients; those of 0.20 refuse any other minor.
const protocolVersion = "0.20.0"

// drainAfterExit is how long proc_done waits for more output once the leader
// has ended and a descendant still holds a pipe.
const drainAfterExit = 100 * time.Millisecond

// Config of the face. Sandbox is needed; the rest has defaults.
type Config struct {
	// Sandbox is where processes run and files are.
	Sandbox driver.Access
	// Dir is the working directory of processes that name none, and where
	// relative paths start. Absolute. Empty: the user's home.
	Dir string
	// Environ is what processes inherit, as "NAME=value". nil: the daemon's
	// environment.
	Environ []string
	// User of processes and files. Empty: the sandbox's own.
	User string
	// Shell is sent in system_info. Empty: /bin/sh.
	Shell string
	// Remote: the processes run on another machine. File requests are refused,
	// and without Dir the other machine's defaults hold.
	Remote bool
	// Version is sent as server_version if it is a semantic one.
	Version string
	// Budget of what is held for clients; nil: no bound.
	Budget *budget.Budget
	// Trace makes spans of requests. nil: none.
	Trace protocol.Trace
	// Log gets one line for each connection that was refused. nil: none.
	Log *slog.Logger
}

// Face answers requests. It holds no state but its connections, and may serve
// any number of them over any transport.
type Face struct {
	manager process.Manager
	inherit process.Inherit
	environ map[string]string // the base of every environment; nil: the daemon's
	account string            // as in process.Spec.User
	dir     string
	fs      fileSystem // nil: no file requests
	system  message
	version message
	budget  *budget.Budget
	trace   protocol.Trace
	log     *slog.Logger
}

// fileSystem is what file requests need of a sandbox's files. Those of a driver
// that cannot do it all are refused.
type fileSystem interface {
	driver.Files
	Append(path string, data []byte) error
	Copy(ctx context.Context, src, dst string) error
	RemoveOne(path string) error
	Do(ctx context.Context, do func(a *files.Actor) error) error
}

var _ fileSystem = files.FS{}

// New checks the configuration.
func New(c Config) (*Face, error) {
	if c.Sandbox == nil {
		return nil, &process.InvalidError{Field: "sandbox", Reason: "is missing; the face needs one to start processes"}
	}
	f := &Face{
		manager: c.Sandbox.Processes(), inherit: process.InheritDaemon, account: c.User, dir: c.Dir,
		budget: c.Budget, trace: c.Trace, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
	}
	name := ""
	capabilities := wire.List{"exec"}
	if !c.Remote {
		user, err := c.Sandbox.User(c.User)
		if err != nil {
			return nil, err
		}
		inside, err := c.Sandbox.Files(c.User, "")
		if err != nil {
			return nil, err
		}
		name = user.Name
		if f.dir == "" {
			f.dir = filepath.Join("/", user.Home)
		}
		if fs, ok := inside.(fileSystem); ok {
			f.fs = fs
			capabilities = append(capabilities, "fs_io", "fs_perm", "fs_search", "fs_watch")
		}
	}
	if f.dir != "" && !filepath.IsAbs(f.dir) {
		return nil, &process.InvalidError{Field: "dir", Reason: fmt.Sprintf("is %q; an absolute path is needed", f.dir)}
	}
	if c.Environ != nil {
		f.inherit, f.environ = process.InheritNone, environment(c.Environ)
	}
	f.version = wire.Map{
		"type", "version", "server_version", semver(c.Version), "protocol_version", protocolVersion, "capabilities",
		append(capabilities, "sys_info"),
	}
	f.system = wire.Map{
		"type", "system_info", "family", "unix", "os", rustOS(runtime.GOOS), "arch", rustArch(runtime.GOARCH),
		"current_dir", cmp.Or(f.dir, "/"), "main_separator", "/", "username", name, "shell", cmp.Or(c.Shell, "/bin/sh"),
	}
	return f, nil
}

// environment is the list as a map. Entries that no process can be given are
// left out, as execve would have them.
func environment(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, entry := range list {
		name, value, ok := strings.Cut(entry, "=")
		if ok && name != "" && !strings.Contains(entry, "\x00") {
			env[name] = value
		}
	}
	return env
}

var semantic = lazyregexp.New(`^v?((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?)$`)

// semver is the version if it is one: clients refuse anything else.
func semver(version string) string {
	if m := semantic.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0"
}

// rustOS and rustArch are the names that the original's clients know.
func rustOS(goos string) string {
	if goos == "darwin" {
		return "macos"
	}
	return goos
}

func rustArch(goarch string) string {
	switch goarch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	case "386":
		return "x86"
	}
	return goarch
}

// abs makes a path absolute: relative ones start at the working directory.
func (f *Face) abs(path string) string {
	if path == "" || filepath.IsAbs(path) || path[0] == '~' {
		return path
	}
	return f.dir + "/" + path
}
