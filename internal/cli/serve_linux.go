package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/cli/role"
	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/gomonitor"
	"github.com/tend-run/tend/internal/core/launch"
	"github.com/tend-run/tend/internal/files/credentials"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/home"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/sandboxd"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/server"
	assembly "github.com/tend-run/tend/internal/server/daemon"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/server/telemetry"
)

// Run becomes the launcher: it does not return unless it could not.
func (c *serveCmd) Run(ctx context.Context, inv *invocation) error {
	passed, err := launch.Passed(inv.getenv)
	if err != nil {
		return err
	}
	var open []string
	for _, s := range passed {
		open = append(open, s.Addr)
	}
	p, err := c.plan(inv, open...)
	if err != nil {
		return err
	}
	if err := launch.Usable(p.stateDir); err != nil {
		return err
	}
	if name := p.flags.DefaultUser; name != "" {
		// Each request that names no user would fail for it.
		if _, err := credentials.Lookup(name); err != nil {
			return fmt.Errorf("--default-user %s: %w; name a user of this machine that tend may act for, or leave it out", name, err)
		}
	}
	if err := p.prepare(); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cfg := launch.Config{StateDir: p.stateDir, Listen: p.listen, Passed: passed, ServerArgv: p.serverArgs(exe), Keep: p.keep,
		Background: c.Background, Environ: launch.WithoutPassed(inv.environ())}
	err = launch.Exec(cfg)
	busy, ok := errors.AsType[*launch.BusyError](err)
	if ok && !c.Background && launch.Replaceable(p.stateDir) {
		err = replaceDaemon(ctx, inv, cfg, busy.PID)
		busy, ok = errors.AsType[*launch.BusyError](err)
	}
	if ok {
		return fmt.Errorf("a daemon (pid %d) serves %s already. To serve with this command line in its place, losing nothing, run 'tend shutdown --keep' and then this again; or give this one a --state-dir of its own", busy.PID, p.stateDir)
	}
	return err
}

// replaceTimeout is how long the launcher before may take to leave. It takes a
// millisecond.
const replaceTimeout = 10 * time.Second

// replaceDaemon takes the place of a daemon that a command such as tend run has
// started by itself. Processes, output and readers continue: it is the same path
// as after a launcher's death.
func replaceDaemon(ctx context.Context, inv *invocation, cfg launch.Config, pid int) error {
	what := "its processes go on, and end with this one"
	if cfg.Keep {
		what = "its processes go on"
	}
	fmt.Fprintf(inv.errs, "tend: taking the place of the daemon (pid %d) that runs in the background: %s; its log stays in %s\n",
		pid, what, filepath.Join(cfg.StateDir, logName))
	if err := launch.EndLauncher(cfg.StateDir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	for {
		err := launch.Exec(cfg)
		_, busy := errors.AsType[*launch.BusyError](err)
		if !busy || !backoff.Wait(ctx, 5*time.Millisecond) { // another tend serve was faster, or it stands still
			return err
		}
	}
}

func kept(dir string) bool { return launch.Kept(dir) }

// lives reports whether a role of the daemon on a state directory, or its launcher, is
// there.
func lives(dir string) bool { return launch.Lives(dir) }

// silent says why a daemon does not answer, and trouble why it may not be able to;
// continueRoles continues stopped roles.
func silent(dir string) string  { return launch.Silent(dir) }
func trouble(dir string) string { return launch.Trouble(dir) }
func continueRoles(dir string)  { launch.Continue(dir) }

// end ends a daemon without its server.
func end(dir string) error { return launch.End(dir) }

func owned(dir string) error { return launch.Owned(dir) }

// leftBehind reports whether no server will answer on the sockets of a state
// directory until the next tend serve. A server that was killed is back within
// a second, and is waited for.
func leftBehind(ctx context.Context, dir string) bool {
	for range 10 {
		if !kept(dir) || !backoff.Wait(ctx, 100*time.Millisecond) {
			return false
		}
	}
	return true
}

// ownProgram is tend as a process of the daemon's starts it; nil: its file is gone.
func ownProgram() []string {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	// Replaced by another one, which an upgrade has not come to yet: that is tend, too.
	return []string{strings.TrimSuffix(exe, " (deleted)")}
}

// serverCmd is the server role, and, as distant's launcher calls it, "server
// listen".
type serverCmd struct {
	Role   serverRoleCmd    `cmd:"" signals:"int,term" default:"" hidden:"" help:"The server role; tend serve starts it."`
	Listen distantListenCmd `cmd:"" help:"As tend distant listen."`
}

// serverRoleCmd is the server role: the anchor starts it with the listeners
// open.
type serverRoleCmd struct {
	serveFlags
	sandboxdFlags
	Listeners    int  `hidden:"" default:"1" help:"Listeners inherited from fd 3 on."`
	TLSListeners int  `name:"tls-listeners" hidden:"" help:"So many of them, before that for distant, are for TLS."`
	Distant      bool `hidden:"" help:"The last of them is for distant."`
	Sandboxd     bool `hidden:"" help:"The last of them are for sandboxd."`
}

func (c *serverRoleCmd) Run(ctx context.Context, inv *invocation) error {
	dir, err := inv.stateDir()
	if err != nil {
		return err
	}
	role.OutliveLog()
	launch.SetLastWords(dir, nil)
	if err = c.serve(ctx, inv, dir); err != nil {
		launch.SetLastWords(dir, err)
	}
	return err
}

func (c *serverRoleCmd) serve(ctx context.Context, inv *invocation, dir string) error {
	level := slog.LevelInfo
	if c.Debug {
		level = slog.LevelDebug
	}
	_, tty := terminalOf(inv.errs)
	log := server.NewLogger(inv.errs, tty, level)
	token := ""
	if c.TokenFile != "" {
		var shared, err error
		if token, shared, err = readToken(c.TokenFile); err != nil {
			return err
		}
		if shared != nil {
			log.Warn("token file", slog.Any("err", shared))
		}
	}
	var exitSecret []byte
	if c.OnExitSecret != "" {
		var err error
		if exitSecret, err = readExitSecret(c.OnExitSecret); err != nil {
			return err
		}
	}
	_ = gomonitor.Monitor(0) // where it may not, all is as it was
	failpoint.Open(dir)
	if err := launch.HoldServer(dir); err != nil {
		return err
	}
	listeners, err := launch.Inherited(c.Listeners)
	if err != nil {
		return err
	}
	sizes, err := c.sizes()
	if err != nil {
		return err
	}
	reach, deny, err := c.network()
	if err != nil {
		return err
	}
	mirrors, err := c.mirrors()
	if err != nil {
		return err
	}
	environ, sight := os.Environ(), telemetryOf(inv, dir, log)
	if sight != nil {
		environ = withoutCollector(environ)
	}
	var distant net.Listener
	if last := len(listeners) - 1; c.Distant {
		listeners, distant = listeners[:last], listeners[last]
	}
	var pod *sandboxd.Settings
	if last := len(listeners) - 2; c.Sandboxd {
		pod = c.sandboxdFlags.settings(environ, listeners[last], listeners[last+1])
		listeners = listeners[:last]
	}
	group, err := groupID(c.Group)
	if err != nil {
		return err
	}
	proxies, err := c.proxies()
	if err != nil {
		return err
	}
	domains, secure, err := c.operatorTLS(&listeners, c.TLSListeners)
	if err != nil {
		return err
	}
	return assembly.Run(ctx, assembly.Config{
		Settings: operator.Settings{
			StateDir: dir, Listeners: listeners, Distant: distant, Sandboxd: pod,
			Token: protocol.Token(token), TokenFile: c.TokenFile, Insecure: c.Insecure,
			Group:   group,
			Domains: domains, TLS: secure, Origins: c.AllowOrigin, Proxies: proxies, PortFile: c.PortFile, URLFile: filepath.Join(dir, home.URLFile),
			DefaultUser: c.DefaultUser, DefaultWorkdir: c.DefaultWorkdir, Network: network.Config{Reach: reach, Deny: deny},
			BasePaths: c.BasePath, SharedProc: c.SandboxProc == "shared", SandboxDisk: sizes.disk, VolumeDisk: sizes.volume,
			Mirrors: mirrors, ShareImages: c.ImageShare, ImagesMost: sizes.images, NoSpare: c.NoSpareSandbox,
			Providers:  c.Providers,
			ExitSecret: exitSecret, ExitSecretFile: c.OnExitSecret,
			Program: ownProgram(), Version: versionText(), Log: log,
		},
		Client: client.Config{Environ: environ, Sync: syncOf(c.Fsync), Budget: sizes.budget, Keep: sizes.keep,
			TTL: c.KeepFinished, Rebuilt: func() {
				// All that runs is as it was, and so is all that clients need to continue:
				// the next server finds it, as after a crash.
				log.Error("the keeper's shared memory was damaged; another server goes on")
				os.Exit(1)
			}},
		Telemetry: sight,
	})
}

// telemetryOf is what the server role's environment asks for. A daemon that a command such
// as tend run has started by itself has that of some shell, which was not meant for it.
// tend serve has refused what is wrong; where it is wrong all the same, for another version,
// the server serves without.
func telemetryOf(inv *invocation, dir string, log *slog.Logger) *telemetry.Settings {
	if launch.Replaceable(dir) {
		return nil
	}
	s, err := telemetry.FromEnvironment(inv.getenv)
	if err != nil {
		log.Warn("no telemetry is sent", slog.Any("err", err))
	}
	return s
}

// withoutCollector leaves out where telemetry goes, which is the daemon's: it may have keys
// in it, and no process needs it that inherits the daemon's environment.
func withoutCollector(environ []string) []string {
	return slices.DeleteFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, "OTEL_EXPORTER_OTLP_") })
}
