// Package parts assembles the driver of the daemon's sandboxes and the parts of its
// server. A new part is added here.
//
// # What callers show
//
//	/-/healthz, /-/readyz, GET /health         nothing: there are no facts in them
//	/files with a signature                    as envd has it
//	/tend.v1.*, /-/metrics                     Authorization: Bearer <token>, or a session of the page
//	/ui/*                                      nothing: there are no facts in its files
//	/-/clients                                 as /tend.v1.*; to show keys, the token itself
//	all other paths of envd, /init included    X-Access-Token: <token>
//	/v2/sandboxes/*, /langsmith/*              X-Api-Key or a bearer token, or a link's own token
//	/sandboxes/*, /templates/* and the like    the same, or the key that E2B's SDKs want (protocol.E2BKey)
//	/api/gateway/*, /api/sandbox/*             a virtual key
//	/mcp                                       Authorization: Bearer <token>; with Tend-Sandbox that sandbox's own
//	a sandbox's envd                           X-Access-Token: the sandbox's own, or <token>
//	a sandbox's ports                          nothing, or the token of its ports
//
// With a token the envd face starts as if /init had set the token, so it is never open.
//
// # Files in the state directory
//
//	secret               what the tokens of sandboxes are made of (0600)
//	builds/              files for builds of templates by tend's own API, while they last
//	e2b/                 uploads for builds of templates; events of sandboxes, and webhooks with their secrets (0600)
//	envd/settings.json   what /init set (0600): variables, default user, …
//	services/            the services that are kept running, with their environments (0600)
//	page-sessions.json   who is logged in to the page, as hashes (0600)
//	gateway/             virtual keys (as hashes), what they have used, and reports (0600)
//	healing/             what is done to repair a service, and the keys for it (0600)
//	boxes/               the sandboxes of the host driver
//	sandboxes/           the sandboxes of the local driver, which are isolated
//	usage/               what the machine, sandboxes and services have used in the last day
//	telemetry/           which spans a collector has taken
//	langsmith/           the secret behind links, maps of text offsets
//	tls/                 the certificates of --tls, with their keys (0600)
//	distant/             key and sessions of distant's transport, and its URI
package parts

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/tend-run/tend/internal/core/container"
	codes "github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/protocol/e2bapi"
	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/protocol/envd/envdfs"
	"github.com/tend-run/tend/internal/protocol/gateway"
	"github.com/tend-run/tend/internal/protocol/interpreter"
	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/protocol/mcp"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/protocol/page"
	"github.com/tend-run/tend/internal/protocol/ports"
	"github.com/tend-run/tend/internal/protocol/sandboxd"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/eventlog"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/sandbox/local"
	"github.com/tend-run/tend/internal/sandbox/multi"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/sandbox/oci/registry"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/server/certificates"
	"github.com/tend-run/tend/internal/server/exits"
	"github.com/tend-run/tend/internal/server/healing"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/server/services"
	"github.com/tend-run/tend/internal/server/usage"
	"github.com/tend-run/tend/process"
)

// Config is what the parts share. Manager and StateDir are needed.
type Config struct {
	operator.Settings
	// Manager of the machine's processes.
	Manager process.Manager
	// Moving is as in run.Config.
	Moving func(context.Context) error
	// Inside and Sandboxes are for sandboxes that are isolated, as in local.Config. nil:
	// there are none.
	Inside     func(local.Root) process.Manager
	Containers container.Engine
	// Trusted reports whether a caller needs no token. nil: every caller needs one.
	Trusted func(*http.Request) bool
	// Budget of what is held for clients, the server's. nil: no bound.
	Budget *budget.Budget
	// Trace makes spans of the requests that are none of HTTP. nil: none.
	Trace protocol.Trace
	// Admin answers for the daemon.
	Admin native.Admin
	// InShutdown is as in run.Config of the supervisor.
	InShutdown func(time.Time) bool
	// Roles is as in run.Config of the supervisor.
	Roles func() []int
	// URL is where the workers that repair services find this server. Empty: nothing is
	// repaired.
	URL string
	// Address is where clients of this machine find the server without TLS.
	Address string
	// Held: the listening sockets outlive this server.
	Held bool
}

// Set is what a server has to do.
type Set struct {
	// Certificates of TLS; nil: there is none.
	Certificates *certificates.Source
	Driver       driver.Driver
	// BasePaths are the more directories of this machine that sandboxes see.
	BasePaths []string
	// Doors are the listening sockets inside sandboxes.
	Doors *route.Doors
	// Door is the page's own port.
	Door *page.Door
	// Parts in the order in which they end.
	Parts []module.Part
	// Token returns the token of this moment: envd's POST /init may set one.
	Token func() protocol.Token
	// Session says what a request may do that is of a browser that is logged in to the
	// page.
	Session func(*http.Request) module.Login
}

// Status returns what the driver and the parts say of themselves, by name.
func (s *Set) Status(ctx context.Context) map[string]map[string]string {
	all := map[string]map[string]string{}
	add := func(name string, facts map[string]string) {
		if all[name] == nil {
			all[name] = map[string]string{}
		}
		maps.Copy(all[name], facts)
	}
	add("driver", driverStatus(ctx, s.Driver))
	if len(s.BasePaths) > 0 {
		add("driver", map[string]string{"base_paths": strings.Join(s.BasePaths, ":")})
	}
	for _, p := range s.Parts {
		if r, ok := p.(module.Reporter); ok {
			add(r.Name(), r.Status())
		}
	}
	return all
}

func driverStatus(ctx context.Context, d driver.Driver) map[string]string {
	can := d.Capabilities()
	facts := map[string]string{"name": can.Name, "isolation": cmp.Or(strings.Join(can.Layers, " "), "none")}
	if len(can.Missing) > 0 {
		facts["missing"] = strings.Join(can.Missing, "; ")
	}
	if can.Way != "" {
		facts["way"] = can.Way
	}
	if can.Snapshots {
		facts["snapshots"] = "yes"
	}
	if isolated, err := d.List(ctx); err != nil {
		facts["sandboxes"] = "not known: " + err.Error()
	} else {
		facts["sandboxes"] = strconv.Itoa(len(isolated))
	}
	if m, ok := d.(driver.Imager); ok && m.ImageUse().Images > 0 {
		u := m.ImageUse()
		facts["images"], facts["image_bytes"] = strconv.Itoa(u.Images), strconv.FormatInt(u.Bytes, 10)
		facts["image_most"], facts["image_disk"] = strconv.FormatInt(u.Most, 10), strconv.FormatInt(u.Disk, 10)
	}
	return facts
}

// openDriver returns the driver of the sandboxes, and the destination of requests that
// name no sandbox. If this machine cannot isolate, a sandbox that requests isolation is
// refused with the reason.
func openDriver(c *Config, cells *codes.Service, doors *route.Doors, outside *network.Host,
	tell driver.Tell) (driver.Driver, driver.Access, error) {
	machine := host.NewMachine(c.Manager)
	none, err := host.Open(host.Config{
		Dir: filepath.Join(c.StateDir, "boxes"), Top: c.StateDir, Manager: c.Manager, DefaultUser: c.DefaultUser, Tell: tell, Log: c.Log,
	})
	if err != nil || c.Containers == nil {
		return none, machine, err
	}
	full, err := local.Open(local.Config{
		Dir: filepath.Join(c.StateDir, "sandboxes"), State: c.StateDir, Manager: c.Manager, Inside: c.Inside, Engine: c.Containers,
		Hide: hidden(&c.Settings), Show: c.BasePaths, SharedProc: c.SharedProc,
		Network: outside, Spare: !c.NoSpare, Disk: c.SandboxDisk, VolumeDisk: c.VolumeDisk,
		Door: doors.Open, Tell: tell, ShareImages: c.ShareImages, ImagesMost: c.ImagesMost, Log: c.Log,
		Warm: func(ctx context.Context, id driver.ID, in driver.Access) error {
			return cells.Warm(ctx, codes.Sandbox{ID: string(id), Access: in})
		}, WarmStart: codes.StartCommand(), WarmPort: interpreter.Port,
		Registry: registry.Config{Mirrors: c.Mirrors, Keychain: authn.DefaultKeychain,
			Certificates: []string{"/etc/docker/certs.d", "/etc/containers/certs.d"}},
	})
	if errors.Is(err, driver.ErrUnsupported) {
		return none, machine, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return multi.New(full, none), machine, nil
}

// openEvents opens the log of what becomes of sandboxes.
func openEvents(c *Config) (*eventlog.Log, error) {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir := filepath.Join(c.StateDir, "e2b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return eventlog.Open(filepath.Join(dir, "events.jsonl"), log)
}

// hidden are the daemon's files that a flag may put anywhere, which no sandbox that is
// isolated sees, and where they lead now: a link may lead elsewhere later.
func hidden(s *operator.Settings) (all []string) {
	paths := []string{s.TokenFile, s.PortFile, s.URLFile, s.Providers, s.ExitSecretFile, s.TLS.KeyFile}
	for _, l := range s.Listeners {
		if a, ok := l.Addr().(*net.UnixAddr); ok && filepath.IsAbs(a.Name) { // others have no file
			paths = append(paths, a.Name)
		}
	}
	for _, p := range paths {
		all = append(all, filepath.Clean(p))
		if to, err := filepath.EvalSymlinks(p); err == nil && to != all[len(all)-1] {
			all = append(all, to)
		}
	}
	return slices.DeleteFunc(all, func(p string) bool { return !filepath.IsAbs(p) || p == "/" || len(p) > container.MaxPath })
}

// Open makes the driver and the parts. They do nothing until a server has them.
func Open(c Config) (*Set, error) {
	if c.Manager == nil || c.StateDir == "" {
		return nil, errors.New("parts: a manager and a state directory are needed")
	}
	doors := new(route.Doors)
	outside := network.NewHost(c.Network)
	history, err := openEvents(&c)
	if err != nil {
		return nil, err
	}
	code := new(codes.Service)
	isolated, machine, err := openDriver(&c, code, doors, outside, history.Add)
	if err != nil {
		return nil, err
	}
	secret, err := protocol.OpenSecret(filepath.Join(c.StateDir, "secret"))
	if err != nil {
		return nil, err
	}
	sandboxes := &route.Router{Driver: isolated, Default: machine, Domains: c.Domains}
	sc := services.Config{Manager: c.Manager, Dir: filepath.Join(c.StateDir, "services"), InShutdown: c.InShutdown,
		Roles: c.Roles, Moving: c.Moving, Driver: isolated, Program: c.Program, Log: c.Log}
	var repair *healing.Healing
	if len(c.Program) > 0 && c.URL != "" {
		repair = healing.Open(healing.Config{
			Manager: c.Manager, Dir: filepath.Join(c.StateDir, "healing"), StateDir: c.StateDir, Program: c.Program, URL: c.URL,
			Token: string(c.Token), Log: c.Log,
			Away: awayIn(isolated), Sandbox: idIn(isolated), Watch: watchIn(isolated),
		})
		sc.Healer = repair
	}
	kept := services.Open(sc)
	set := &Set{Driver: isolated, BasePaths: c.BasePaths, Doors: doors, Door: page.NewDoor(filepath.Join(c.StateDir, "page-port"))}
	shown, err := page.New(page.Config{
		Secret: secret, Token: func() protocol.Token { return set.Token() }, File: filepath.Join(c.StateDir, "page-sessions.json"), Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	gate, err := gateway.Open(gateway.Config{
		Dir: filepath.Join(c.StateDir, "gateway"), Providers: c.Providers, Extend: prolonger(isolated), Budget: c.Budget, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	var chats native.Chats
	var before native.Kept
	if repair != nil {
		chats, before = repair, repair
	}
	used := usage.Open(usage.Config{Manager: c.Manager, Driver: isolated, Services: services.API{Services: kept}.List,
		Dir: filepath.Join(c.StateDir, "usage"), Log: c.Log})
	prepared := map[string]func(context.Context) error{codes.Template: (&codes.Templates{Driver: isolated, Log: c.Log}).Prepare}
	api, err := native.New(native.Config{
		Manager: c.Manager, Driver: isolated, Machine: machine, Admin: c.Admin, Services: services.API{Services: kept}, Chats: chats,
		Code: code, Prepared: prepared,
		Kept: before, Keys: keys{gate}, Page: shown, OpenDoor: set.Door.Open,
		Usage: sessions, Measured: used.Usage, Instance: rand.Text(), Version: c.Version, Held: c.Held,
		Secret: secret, Domains: c.Domains, Dir: filepath.Join(c.StateDir, "builds"),
	})
	if err != nil {
		return nil, err
	}
	processes, err := envd.New(envd.Config{
		Sandboxes: sandboxes, DefaultUser: c.DefaultUser, DefaultWorkdir: c.DefaultWorkdir,
		Token: c.Token, Secret: secret, Guard: protocol.Guard{Domains: c.Domains, Origins: c.Origins, Off: c.Insecure},
		Store: settingsIn(c.StateDir), Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	files := envdfs.New(envdfs.Config{
		Tokens: processes.Tokens, Wrap: processes.Wrap, Files: processes.Files, DefaultUser: processes.DefaultUser, Log: c.Log,
	})
	control, err := langsmith.New(langsmith.Config{
		Driver: isolated, Token: processes.AccessToken, Trusted: c.Trusted,
		Dir: filepath.Join(c.StateDir, "langsmith"), Budget: c.Budget, Proxies: c.Proxies, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	e2b, err := e2bapi.New(e2bapi.Config{
		Driver: isolated, Secret: secret, Token: processes.AccessToken, Trusted: c.Trusted, Domains: c.Domains, Port: c.TLS.Port,
		Prepared: prepared,
		Dir:      filepath.Join(c.StateDir, "e2b"), Events: history, Dial: outside.Dial, Refuses: outside.Refuses, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	tools, err := mcp.New(mcp.Config{
		Machine: machine, Driver: isolated, Code: code, Prepared: prepared, Services: services.API{Services: kept}, Secret: secret,
		Token: processes.AccessToken, Trusted: c.Trusted, Trace: c.Trace, Version: c.Version, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	cells := interpreter.New(interpreter.Config{Service: code, Secret: secret, Token: processes.AccessToken,
		Budget: c.Budget, Log: c.Log})
	inside := ports.New(ports.Config{Sandboxes: sandboxes, Secret: secret, Token: processes.AccessToken, VisitorLasts: shown.VisitorLasts,
		Own: cells.Own, Proxies: c.Proxies, Budget: c.Budget, Log: c.Log})
	set.Parts = []module.Part{api, shown, kept, used, control, e2b, gate, tools, cells, inside, processes, files}
	set.Parts = append(set.Parts, exits.Open(exits.Config{Manager: c.Manager, Dir: filepath.Join(c.StateDir, "exits"),
		Secret: c.ExitSecret, Log: c.Log}))
	set.Token, set.Session = processes.AccessToken, shown.Login
	if repair != nil {
		repair.Over(kept)
		set.Parts = append(set.Parts, repair)
	}
	set.Parts = append(set.Parts, clients{&c, processes.AccessToken, set})
	if c.TLS.Mode != "" {
		set.Certificates, err = certificates.Open(certificates.Config{Mode: c.TLS.Mode, Domain: c.Domains[0], Dir: c.StateDir,
			CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, Directory: c.TLS.Directory, DNSHook: c.TLS.DNSHook, Log: c.Log})
		if err != nil {
			return nil, err
		}
		set.Parts = append(set.Parts, set.Certificates)
	}
	if c.Distant != nil {
		set.Parts = append(set.Parts, &distant.Service{
			Config: distant.Config{
				Sandbox: machine, Dir: c.DefaultWorkdir, User: c.DefaultUser,
				Budget: c.Budget, Trace: c.Trace, Version: c.Version, Log: c.Log,
			},
			Dir: filepath.Join(c.StateDir, "distant"), Listener: c.Distant,
		})
	}
	if c.Sandboxd != nil {
		pod, err := sandboxd.New(sandboxd.Config{Settings: *c.Sandboxd, Machine: machine, Budget: c.Budget, Log: c.Log,
			Stopping: func() bool { return c.InShutdown != nil && c.InShutdown(time.Now()) }})
		if err != nil {
			return nil, err
		}
		set.Parts = append(set.Parts, pod)
	}
	return set, nil
}

// sessions is what the sessions of this machine's processes have used, by pid.
func sessions() map[int]native.Use {
	all := procfs.Sessions()
	used := make(map[int]native.Use, len(all))
	for pid, u := range all {
		used[pid] = native.Use(u)
	}
	return used
}
