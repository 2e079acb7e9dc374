package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
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
	"github.com/tend-run/tend/internal/sandbox/local"
	"github.com/tend-run/tend/internal/server"
	"github.com/tend-run/tend/internal/server/metrics"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/server/parts"
	"github.com/tend-run/tend/internal/server/telemetry"
	"github.com/tend-run/tend/process"
)

// Config of the server role.
type Config struct {
	operator.Settings
	// Client is how the keeper's processes are reached. Its StateDir and Log are set by Run.
	Client client.Config
	// Telemetry is what OpenTelemetry's variables ask for; nil: nothing.
	Telemetry *telemetry.Settings
}

// Run is the server role: it serves until ctx ends.
func Run(ctx context.Context, c Config) error {
	log, dir := c.Log, c.StateDir
	c.Client.StateDir, c.Client.Log = dir, log
	c.Network.Own, c.Network.Log = c.ports(), log
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
		Settings: c.Settings,
		Inside:   func(r local.Root) process.Manager { return measured.Over(sight.Over(used{manager.In(r), idle})) },
		Manager:  measured.Manager(), Moving: manager.Ping, Containers: manager.Containers(), Trusted: server.Trusted, Budget: held,
		Trace: sight.Request, Admin: daemon, InShutdown: run.InShutdown, Roles: roles.pids, URL: c.workerURL(), Address: daemon.url, Held: true,
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
	var certificates *tls.Config
	if set.Certificates != nil {
		certificates = set.Certificates.TLS()
	}
	s, err := server.New(server.Config{
		Settings: c.Settings, Certificates: certificates, Manager: manager, Driver: set.Driver, Parts: set.Parts, Doors: set.Doors,
		Door:     set.Door,
		TokenNow: set.Token, Session: set.Session,
		Final: daemon.final, Used: idle.Used, Around: sight.Around, Metrics: measured, Budget: held,
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
	listeners := append(slices.Concat(c.Listeners, c.TLS.Listeners), c.Distant)
	if c.Sandboxd != nil {
		listeners = append(listeners, c.Sandboxd.REST, c.Sandboxd.GRPC)
	}
	for _, l := range listeners {
		if l == nil {
			continue
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			all = append(all, uint16(a.Port))
		}
	}
	return all
}
