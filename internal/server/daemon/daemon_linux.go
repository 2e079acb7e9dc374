package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/idletrim"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/local"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/server"
	"github.com/tend-run/tend/internal/server/metrics"
	"github.com/tend-run/tend/internal/server/parts"
	"github.com/tend-run/tend/internal/server/telemetry"
	"github.com/tend-run/tend/process"
)

// Config of the server role. Client.StateDir and Listeners are needed.
type Config struct {
	// Client is how the keeper's processes are reached. Its StateDir and Log are
	// those of the whole role.
	Client client.Config
	// Listeners of the HTTP server. The launcher holds them, too.
	Listeners []net.Listener
	// Distant is where distant's encrypted transport is served. nil: nowhere.
	Distant net.Listener

	// As in server.Config.
	Token             string
	Insecure          bool
	PortFile, URLFile string
	// TokenFile is where Token is from: no sandbox that is isolated sees it.
	TokenFile string
	// As in parts.Config.
	Domains, Origins            []string
	DefaultUser, DefaultWorkdir string
	// As in network.Config.
	Reach, Deny []network.Rule
	// NoSpare and SandboxDisk are as in parts.Config.
	NoSpare     bool
	SandboxDisk int64
	// Providers is as in parts.Config: an absolute path.
	Providers string
	// ExitSecret is as in parts.Config, and ExitSecretFile where it is from.
	ExitSecret     []byte
	ExitSecretFile string

	// Telemetry is what OpenTelemetry's variables ask for; nil: nothing.
	Telemetry *telemetry.Settings

	// Program is as in parts.Config.
	Program []string
	Version string
}

// Run is the server role: it serves until ctx ends.
func Run(ctx context.Context, c Config) error {
	log, dir := c.Client.Log, c.Client.StateDir
	// Clients wait while a server starts: up to 16 MiB of what that makes are not collected
	// meanwhile.
	collect := debug.SetGCPercent(400)
	run, err := rundir.Open(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	manager, err := client.Open(ctx, c.Client)
	if err != nil {
		return err
	}
	defer manager.Close()
	roles, err := openRoles(dir, func(err error) { log.Warn("roles", slog.Any("err", err)) }, manager.UpgradeKeeper)
	if err != nil {
		return err
	}
	daemon := &admin{
		version: c.Version, url: server.FindURL(c.Listeners, "tcp"), stateDir: dir,
		manager: manager, sync: c.Client.Sync, roles: roles, log: log,
	}
	idle := idletrim.New(idletrim.Program())
	defer idle.Close()
	sight := telemetry.Open(telemetry.Config{
		Settings: c.Telemetry, Dir: filepath.Join(dir, "telemetry"), Host: hostname(), Instance: instance(dir), Version: c.Version, Log: log,
	})
	defer sight.Close()
	measured := metrics.New(metrics.Config{Manager: sight.Over(used{manager, idle}), Roles: roles.metrics, Version: c.Version})
	sight.Feed(manager, measured)
	held := budget.New(inFlight(procfs.MemoryLimit()))
	set, err := parts.Open(parts.Config{
		Inside:  func(r local.Root) process.Manager { return measured.Over(sight.Over(used{manager.In(r), idle})) },
		Manager: measured.Manager(), Moving: manager.Ping, Boxes: manager.Boxes(), Hide: c.own(),
		Network: network.Config{Reach: c.Reach, Deny: c.Deny, Own: c.ports(), Log: log}, NoSpare: c.NoSpare, SandboxDisk: c.SandboxDisk,
		StateDir: dir, Domains: c.Domains, Origins: c.Origins, DefaultUser: c.DefaultUser, DefaultWorkdir: c.DefaultWorkdir,
		Token: protocol.Token(c.Token), Trusted: server.Trusted, Insecure: c.Insecure, Budget: held, Trace: sight.Request,
		Distant: c.Distant, Providers: c.Providers, ExitSecret: c.ExitSecret, Admin: daemon, InShutdown: run.InShutdown,
		Roles: roles.pids, Program: c.Program, URL: c.workerURL(), Held: true, Version: c.Version, Log: log,
	})
	if err != nil {
		return err
	}
	if err := closeToSandboxes(dir); err != nil {
		return err
	}
	if sight.On() {
		set.Parts = append(set.Parts, sight)
	}
	daemon.parts = set
	s, err := server.New(server.Config{
		Manager: manager, Driver: set.Driver, Parts: set.Parts, Listeners: c.Listeners,
		Token: c.Token, TokenNow: set.Token, Session: set.Session, Insecure: c.Insecure, Domains: c.Domains, Origins: c.Origins,
		PortFile: c.PortFile, URLFile: c.URLFile,
		Final: daemon.final, Used: idle.Used, Around: sight.Around, Metrics: measured, Budget: held, Version: c.Version, Log: log,
	})
	if err != nil {
		return err
	}
	debug.SetGCPercent(collect)
	return s.Run(ctx)
}

// leastInFlight is what may be held for clients on the smallest of machines, in bytes, and
// inFlightOfMemory what part of the memory it is on others.
const leastInFlight, inFlightOfMemory = 32 << 20, 4

// inFlight is what may be held for clients, for a server that may use so much memory; 0: not
// known.
func inFlight(memory int64) int64 {
	if memory == 0 {
		return server.InFlight
	}
	return min(max(memory/inFlightOfMemory, leastInFlight), server.InFlight)
}

// hostname is the machine's name; "" if it has none.
func hostname() string {
	name, _ := os.Hostname()
	return name
}

// instance distinguishes this daemon from others, and is the same for all its servers.
// It does not reveal the path.
func instance(stateDir string) string {
	sum := sha256.Sum256([]byte(hostname() + "\x00" + stateDir))
	return hex.EncodeToString(sum[:8])
}

// workerURL is where a process of the daemon's own finds it: a unix socket, where there is
// one, for it needs no token there.
func (c *Config) workerURL() string {
	for _, l := range c.Listeners {
		if a, ok := l.Addr().(*net.UnixAddr); ok && filepath.IsAbs(a.Name) {
			return "unix://" + a.Name
		}
	}
	return server.FindURL(c.Listeners, "tcp")
}

// ports are those of TCP that the daemon is called at.
func (c *Config) ports() (all []uint16) {
	for _, l := range append(slices.Clone(c.Listeners), c.Distant) {
		if l == nil {
			continue
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			all = append(all, uint16(a.Port))
		}
	}
	return all
}

// own are the daemon's files that a flag may put anywhere.
func (c *Config) own() (paths []string) {
	for _, p := range []string{c.TokenFile, c.PortFile, c.URLFile, c.Providers, c.ExitSecretFile} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	for _, l := range c.Listeners {
		if a, ok := l.Addr().(*net.UnixAddr); ok && filepath.IsAbs(a.Name) { // others have no file
			paths = append(paths, a.Name)
		}
	}
	return paths
}
