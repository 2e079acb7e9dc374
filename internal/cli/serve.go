package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/home"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/gateway"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/server"
	"github.com/tend-run/tend/internal/server/telemetry"
	"github.com/tend-run/tend/process"
)

// serveFlags are what "tend serve" passes on to the server role.
type serveFlags struct {
	Socket         string        `name:"socket" placeholder:"PATH" help:"Unix socket; none for no socket. Default: in the state directory if one is given, else /run/tend or $XDG_RUNTIME_DIR/tend; none if systemd passes sockets (LISTEN_FDS)."`
	PortFile       string        `name:"port-file" placeholder:"FILE" help:"Write the URL here once it serves."`
	TokenFile      string        `name:"token-file" placeholder:"FILE" help:"File with the token that callers over TCP must send; its mode must be 0600 or less."`
	Group          string        `name:"group" placeholder:"GROUP" help:"Members of this group may call by the unix socket, too, which is then theirs (mode 0660). They can do all that the daemon can: of root's daemon they are root. Default: the daemon's user and root alone."`
	DefaultUser    string        `name:"default-user" placeholder:"NAME" help:"User of envd requests that name none. Default: the user that serves."`
	DefaultWorkdir string        `name:"default-workdir" placeholder:"DIR" help:"Working directory of envd requests that name none. It must exist on this machine; sandboxes have their own. Default: the user's home."`
	Domain         []string      `name:"domain" placeholder:"DOMAIN" help:"Domain below which sandboxes have host names, as E2B's clients use them: 49983-ID.DOMAIN. You set up its DNS, and the proxy that speaks TLS. Repeatable. With --tls the daemon itself answers, and DOMAIN:PORT names the port. Default: none; tend.localhost with --tls own."`
	TLS            string        `name:"tls" enum:"own,files,acme" placeholder:"HOW" help:"Answer https://api.DOMAIN and https://PORT-ID.DOMAIN without a proxy, with certificates of an authority (CA) of this daemon's own (own), of --tls-cert and --tls-key (files), or of an ACME server (acme), whose terms of service you accept. tend env e2b prints what clients need. Default: no TLS."`
	TLSCert        string        `name:"tls-cert" placeholder:"FILE" help:"With --tls files: the certificate with its chain, as PEM, for DOMAIN and *.DOMAIN. It is read again when it changes."`
	TLSKey         string        `name:"tls-key" placeholder:"FILE" help:"With --tls files: the key of --tls-cert, as PEM; its mode must be 0600 or less."`
	ACMEDNS        string        `name:"acme-dns" placeholder:"PROGRAM" help:"With --tls acme: the program that sets TXT records. It is called as: PROGRAM present|cleanup _acme-challenge.DOMAIN VALUE, and ends when all name servers of the domain have the record."`
	ACMEDirectory  string        `name:"acme-directory" placeholder:"URL" help:"With --tls acme: the ACME server. Default: Let's Encrypt."`
	AllowOrigin    []string      `name:"allow-origin" placeholder:"ORIGIN" help:"Origin of web pages that may call without a token, beside the daemon's own: http://localhost:5173 for a dev server. Everybody who can serve a page there can run programs here. Repeatable. Default: none; with a token pages need no such permission."`
	TrustedProxy   []string      `name:"trusted-proxy" placeholder:"ADDRESS" help:"Address or network of a proxy in front, 10.0.0.7 or 10.0.0.0/8: the X-Forwarded-* and Forwarded that it sets reach the programs on ports of sandboxes. Repeatable. Default: those of this machine itself."`
	SandboxReach   []string      `name:"sandbox-reach" placeholder:"RULE" help:"Let isolated sandboxes reach this despite --sandbox-deny: an address, a CIDR, private or *, with :PORT or without. One address with a port is opened even on this machine: 127.0.0.1:3128 for a proxy, whose address inside is 192.0.0.1:3128. The daemon's own ports are never opened. Repeatable. Default: none."`
	SandboxDeny    []string      `name:"sandbox-deny" placeholder:"RULE" help:"Let no isolated sandbox reach this, whatever its own rules say: an address, a CIDR, private (the networks 10.0.0.0/8 and the like) or * (everything), with :PORT or without. Repeatable. Default: none; this machine and cloud metadata services are never reachable."`
	ImageMirror    []string      `name:"image-mirror" placeholder:"HOST=URL" help:"Ask this registry for images of another one first: docker.io=http://127.0.0.1:5000/hub. A path goes before those of images. Repeatable."`
	ImageShare     []string      `name:"image-share" placeholder:"NAME" help:"Callers of E2B's and LangSmith's protocols may have this image, although it was imported, or pulled with this machine's credentials: tools, ghcr.io/acme/*. Repeatable."`
	BasePath       []string      `name:"base-path" placeholder:"DIR" help:"Show this directory of the machine to isolated sandboxes, beside programs, libraries and package databases (/usr and the like): /opt/java, ~/.nvm/versions/node/v22.1.0. It is seen at the same path, and what sandboxes change there is theirs alone. What is not for everybody in it is not shown. Repeatable, at most 32. Default: none; tend doctor names programs that lie elsewhere."`
	SandboxProc    string        `name:"sandbox-proc" enum:"own,shared" default:"own" placeholder:"WHOSE" help:"What isolated sandboxes have as /proc where the kernel gives them none of their own, as in a container that hides parts of it. own: there are no isolated sandboxes then; shared: that of this container, in which programs inside see the names, command lines and users of all its processes. Default: own."`
	SandboxDisk    string        `name:"sandbox-disk" placeholder:"SIZE" help:"Disk limit of an isolated sandbox that requests none (tend sandbox create --disk), 16MiB or more: its disk is a file of its own, which grows with what is written to it. An existing sandbox keeps what it has. Default: it writes to this machine's disk, without a limit."`
	ImagesMax      string        `name:"images-max" placeholder:"SIZE" help:"What the files of all images may have, 16MiB or more. For another image, pulled ones go that nothing uses, those first that were used longest ago. Default: no limit but the disk's last twentieth."`
	VolumeDisk     string        `name:"volume-disk" placeholder:"SIZE" help:"Disk limit of each volume of E2B's API that is made from now on, 16MiB or more: it is a file of its own, which grows with what is written to it. Needs root. Default: a volume is a directory, without a limit."`
	NoSpareSandbox bool          `name:"no-spare-sandbox" help:"Keep no isolated sandboxes ready for the next creations. This saves the memory of the spare ones, but a creation takes three times as long."`
	Providers      string        `name:"providers" placeholder:"FILE" help:"File with the model providers for virtual keys (tend key), and with the providers' own keys; its mode must be 0600 or less. It is read again when it changes. Default: none."`
	OnExitSecret   string        `name:"on-exit-secret" placeholder:"FILE" help:"File with the secret that signs the messages of tend run --on-exit-url; its mode must be 0600 or less. Default: they are not signed."`
	Insecure       bool          `name:"insecure" help:"Listen on any address without a token, and answer every user of this machine and any web page. Everybody who reaches the port can run programs."`
	Fsync          string        `name:"fsync" enum:"none,exit,interval" default:"none" placeholder:"WHEN" help:"When output is synced to the disk, for processes without their own setting: none; exit (an exit is reported once it and all output are on the disk); interval (once a second). It matters only when the power fails. Default: none."`
	SpoolBudget    string        `name:"spool-budget" placeholder:"SIZE" help:"Disk space for all output, 64MiB or more. When it is used up, output is freed of the sandbox that has the most, or of the machine: of its oldest finished processes, then the oldest of its running ones. Exit statuses stay known. Default: a quarter of the free space, at most 16GiB."`
	KeepOutput     string        `name:"keep-output" placeholder:"SIZE" help:"How much of each output stream is kept at least while its process runs, if the process sets no limit. Output that a reader has not read yet is kept up to 4GiB. A larger value costs memory, then speed. Default: 256MiB, and 1GiB while nobody reads it; a sixteenth of the memory if that is less."`
	KeepFinished   time.Duration `name:"keep-finished" default:"24h" placeholder:"DUR" help:"How long a finished process and its output are kept, if the process sets no time. Default: 24h."`
	Debug          bool          `name:"debug" help:"Log more."`
}

type serveCmd struct {
	serveFlags
	Distant   string   `placeholder:"ADDR" help:"Serve distant's encrypted transport on this TCP address; its URI is in distant/uri in the state directory. Default: not served."`
	Listen    []string `placeholder:"ADDR" help:"TCP address, :0 picks a port; none for no TCP. Repeatable. Default: 127.0.0.1:49983; none if systemd passes sockets (LISTEN_FDS)."`
	TLSListen []string `name:"tls-listen" placeholder:"ADDR" help:"TCP address for --tls. Repeatable. Default: the port of --domain, else 49443 with --tls own and 443 otherwise; on this machine alone (127.0.0.1 and [::1]) if the domain ends in .localhost, else on all addresses."`
	Keep      bool     `help:"When the daemon ends, leave the processes running for the next tend serve on the same state directory."`

	Background bool `hidden:"" help:"Let a later tend serve replace this daemon."`

	// sandboxd is set by tend sandboxd, with the addresses for it.
	sandboxd *sandboxdFlags
	extra    []string
}

// plan is a checked serve command line.
type plan struct {
	stateDir string
	listen   []string       // as launch wants them: "127.0.0.1:49983", "unix:/path"
	tls      int            // so many before that are for TLS
	distant  bool           // the last of listen is for distant
	sandboxd *sandboxdFlags // the last of listen are for sandboxd
	token    bool
	flags    serveFlags // paths made absolute
	keep     bool
}

// defaultListen is the port of envd.
const defaultListen = "127.0.0.1:49983"

// plan checks the command line. passed are the addresses of sockets that are open
// already; they are served first, and in place of the defaults.
func (c *serveCmd) plan(inv *invocation, passed ...string) (*plan, error) {
	dir, err := inv.stateDir()
	if err != nil {
		return nil, err
	}
	p := &plan{stateDir: dir, flags: c.serveFlags, keep: c.Keep}
	for _, path := range []*string{&p.flags.PortFile, &p.flags.TokenFile, &p.flags.Providers, &p.flags.OnExitSecret,
		&p.flags.TLSCert, &p.flags.TLSKey} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	if path := p.flags.PortFile; path != "" {
		// The server role writes it at each of its starts, and would fail each time.
		if err := checkPortFile(path); err != nil {
			return nil, err
		}
	}
	if p.flags.TokenFile != "" {
		// Read again by the server role at each of its starts; read here so
		// that a mistake is reported at once.
		if _, shared, err := readToken(p.flags.TokenFile); err != nil || shared != nil {
			return nil, errors.Join(err, shared)
		}
		p.token = true
	}
	if path := p.flags.Providers; path != "" {
		if _, shared, err := readSecret(path); err != nil || shared != nil {
			return nil, fmt.Errorf("--providers: %w", errors.Join(err, shared))
		}
		if _, err := gateway.ReadProviders(path); err != nil {
			return nil, fmt.Errorf("--providers: %w", err)
		}
	}
	if path := p.flags.OnExitSecret; path != "" {
		if _, err := readExitSecret(path); err != nil {
			return nil, err
		}
	}
	if _, err := p.flags.sizes(); err != nil {
		return nil, err
	}
	if keep := p.flags.KeepFinished; keep <= 0 || keep > process.MaxTimeout {
		return nil, usageError(fmt.Sprintf("--keep-finished %v: give more than 0 and at most %v", keep, process.MaxTimeout))
	}
	if dir := p.flags.DefaultWorkdir; dir != "" {
		if err := checkWorkdir(dir); err != nil {
			return nil, err
		}
	}
	secure, err := p.flags.planTLS(c.TLSListen)
	if err != nil {
		return nil, err
	}
	for _, origin := range p.flags.AllowOrigin {
		if err := server.CheckOrigin(origin); err != nil {
			return nil, usageError("--allow-origin " + err.Error())
		}
	}
	if _, err := p.flags.proxies(); err != nil {
		return nil, err
	}
	if _, err := groupID(p.flags.Group); err != nil {
		return nil, err
	}
	for _, pattern := range p.flags.ImageShare {
		if _, err := filepath.Match(pattern, ""); err != nil || pattern == "" {
			return nil, usageError(fmt.Sprintf("--image-share %.200q: write the name of an image, or a pattern such as ghcr.io/acme/*", pattern))
		}
	}
	if p.flags.BasePath, err = basePaths(c.BasePath, p.stateDir); err != nil {
		return nil, err
	}
	if _, err := p.flags.mirrors(); err != nil {
		return nil, err
	}
	if _, _, err := p.flags.network(); err != nil {
		return nil, err
	}
	for _, addr := range passed {
		if err := server.CheckListen(networkName(addr), addr, p.token, c.Insecure); err != nil {
			return nil, err
		}
	}
	if !c.Background {
		if _, err := telemetry.FromEnvironment(inv.getenv); err != nil {
			return nil, err
		}
	}
	p.listen = slices.Clone(passed)
	add := func(addr string) {
		if !slices.Contains(passed, addr) {
			p.listen = append(p.listen, addr)
		}
	}
	addrs := c.Listen
	if len(addrs) == 0 && len(passed) == 0 {
		addrs = []string{defaultListen}
	}
	for _, addr := range addrs {
		if addr == "none" {
			continue
		}
		resolved, err := resolve("--listen", addr)
		if err != nil {
			return nil, err
		}
		if err := server.CheckListen("tcp", resolved, p.token, c.Insecure); err != nil {
			return nil, err
		}
		add(resolved)
	}
	switch socket := p.flags.Socket; socket {
	case "none":
	case "":
		if len(passed) > 0 {
			break
		}
		if socket, err = inv.home().Socket(); err != nil {
			return nil, err
		}
		add("unix:" + socket)
	default:
		if socket, err = filepath.Abs(socket); err != nil {
			return nil, err
		}
		if err := home.CheckSocket(socket); err != nil {
			return nil, err
		}
		add("unix:" + socket)
	}
	if len(p.listen) == 0 {
		return nil, usageError("--listen none together with --socket none leaves nobody who could call; leave one of them out")
	}
	for _, addr := range secure {
		if err := server.CheckListen("tcp", addr, p.token, c.Insecure); err != nil {
			return nil, fmt.Errorf("--tls: %w", err)
		}
	}
	p.listen, p.tls = append(p.listen, secure...), len(secure)
	if c.Distant != "" {
		// Callers show a key, so any address will do.
		resolved, err := resolve("--distant", c.Distant)
		if err != nil {
			return nil, err
		}
		p.listen, p.distant = append(p.listen, resolved), true
	}
	p.listen, p.sandboxd = append(p.listen, c.extra...), c.sandboxd
	return p, nil
}

// groupID is the number of a group that may call; 0: none.
func groupID(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, usageError(fmt.Sprintf("--group %.80q: there is no such group (groupadd --system %[1]s makes one, and usermod -aG %[1]s USER adds a user)", name))
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil || id <= 0 {
		return 0, usageError(fmt.Sprintf("--group %.80q: root's own group is no group of operators; make another one", name))
	}
	return id, nil
}

// networkName is the network of an address as launch wants it.
func networkName(addr string) string {
	if strings.HasPrefix(addr, "unix:") {
		return "unix"
	}
	return "tcp"
}

// checkPortFile reports why a file cannot be written, and replaced each time,
// at path. Replacing /dev/stdout or a socket would take it from all others.
func checkPortFile(path string) error {
	if err := canWriteTo(filepath.Dir(path)); err != nil {
		return fmt.Errorf("--port-file %s: its directory cannot be written to: %w", path, err)
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return usageError(fmt.Sprintf("--port-file %s exists and is not a regular file; it would be replaced: name another file", path))
	}
	return nil
}

// checkWorkdir is about the directory in which processes of this machine start that name
// none: each of them would fail for it. Sandboxes have their own.
func checkWorkdir(dir string) error {
	if !filepath.IsAbs(dir) {
		return usageError(fmt.Sprintf("--default-workdir %s is not absolute", dir))
	}
	fi, err := os.Stat(dir)
	if err == nil && fi.IsDir() {
		return nil
	}
	why := cmp.Or[error](errors.Unwrap(err), syscall.ENOTDIR)
	return fmt.Errorf("--default-workdir %s: %w; name a directory of this machine (sandboxes have their own), or leave it out", dir, why)
}

// prepare makes the directories that the daemon needs.
func (p *plan) prepare() error {
	if err := os.MkdirAll(p.stateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w (give another with --state-dir)", err)
	}
	for _, l := range p.listen {
		path, ok := strings.CutPrefix(l, "unix:")
		if !ok {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make the directory of the socket: %w (give another with --socket)", err)
		}
	}
	return nil
}

const (
	// minBudget is the least that --spool-budget takes, in bytes. With less, what
	// was just written would be gone before anybody had read it.
	minBudget = 64 << 20
	// mostKeepOutput bounds what is kept of a stream for its readers, in bytes.
	mostKeepOutput = 4 << 30
	// minDisk and maxDisk are bounds of --sandbox-disk and --volume-disk, bytes, as internal/sandbox/image has them.
	minDisk, maxDisk = 16 << 20, 64 << 40
)

// serveSizes are the flags about space in bytes; 0: not given.
type serveSizes struct{ budget, disk, volume, images, keep int64 }

func (f *serveFlags) sizes() (s serveSizes, err error) {
	if s.budget, err = sizeWithin("--spool-budget", f.SpoolBudget, minBudget, process.MaxRetention, ""); err != nil {
		return s, err
	}
	if s.disk, err = sizeWithin("--sandbox-disk", f.SandboxDisk, minDisk, maxDisk, "; leave it out for none"); err != nil {
		return s, err
	}
	if s.images, err = sizeWithin("--images-max", f.ImagesMax, minDisk, maxDisk, "; leave it out for none"); err != nil {
		return s, err
	}
	if s.volume, err = sizeWithin("--volume-disk", f.VolumeDisk, minDisk, maxDisk, "; leave it out for none"); err != nil {
		return s, err
	}
	s.keep, err = sizeWithin("--keep-output", f.KeepOutput, process.MinRetention, mostKeepOutput,
		" (a process may ask for more: tend run --keep)")
	return s, err
}

// sizeWithin reads a size within bounds; "" is 0.
func sizeWithin(flag, text string, least, most int64, hint string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := parseSize(text)
	if err == nil && (n < least || n > most) {
		err = fmt.Errorf("is out of bounds; give %s to %s%s", sizeText(least), sizeText(most), hint)
	}
	if err != nil {
		return 0, usageError(fmt.Sprintf("%s %s %v", flag, text, err))
	}
	return n, nil
}

// network are --sandbox-reach and --sandbox-deny.
func (f *serveFlags) network() (reach, deny []network.Rule, err error) {
	reach, err = network.ParseReach(f.SandboxReach)
	if err == nil {
		deny, err = network.ParseDeny(f.SandboxDeny)
	}
	if wrong, ok := errors.AsType[*network.RuleError](err); ok {
		err = usageError(fmt.Sprintf("--sandbox-%s %.80s %s", wrong.List, wrong.Rule, wrong.Reason))
	}
	return reach, deny, err
}

func (f *serveFlags) proxies() (protocol.Proxies, error) {
	all, err := protocol.ParseProxies(f.TrustedProxy)
	if err != nil {
		return nil, usageError("--trusted-proxy " + err.Error())
	}
	return all, nil
}

// mirrors are --image-mirror.
func (f *serveFlags) mirrors() (map[string][]*url.URL, error) {
	all := map[string][]*url.URL{}
	for _, text := range f.ImageMirror {
		host, at, ok := strings.Cut(text, "=")
		u, err := url.Parse(at)
		if !ok || host == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return nil, usageError(fmt.Sprintf("--image-mirror %.200s: write HOST=URL, such as docker.io=https://mirror.example/hub", text))
		}
		all[host] = append(all[host], u)
	}
	return all, nil
}

// serverArgs is the command line of the server role: what it needs to know of the listeners, and
// the flags of tend serve that have a value.
func (p *plan) serverArgs(exe string) []string {
	args := []string{exe, "server", "--state-dir", p.stateDir, "--listeners", fmt.Sprint(len(p.listen)), "--tls-listeners", fmt.Sprint(p.tls)}
	if p.distant {
		args = append(args, "--distant")
	}
	flags := p.flags
	flags.Socket = "" // it is one of the listeners
	args = withFlags(args, flags)
	if p.sandboxd != nil {
		args = withFlags(append(args, "--sandboxd"), *p.sandboxd)
	}
	return args
}

// withFlags appends the flags of a struct that have a value.
func withFlags(args []string, flags any) []string {
	for field, value := range reflect.ValueOf(flags).Fields() {
		name := "--" + field.Tag.Get("name")
		switch v := value.Interface().(type) {
		case string:
			if v != "" {
				args = append(args, name, v)
			}
		case []string:
			for _, one := range v {
				args = append(args, name, one)
			}
		case bool:
			if v {
				args = append(args, name)
			}
		case int:
			args = append(args, name, strconv.Itoa(v))
		case time.Duration:
			args = append(args, name, v.String())
		}
	}
	return args
}

// resolve turns the address of a flag into numbers: the launcher has no resolver.
func resolve(flag, addr string) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", usageError(fmt.Sprintf("%s %s: %v; write HOST:PORT, such as 127.0.0.1:49983", flag, addr, err))
	}
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return "", usageError(fmt.Sprintf("%s %s: %v", flag, addr, err))
	}
	if host == "" {
		// All addresses, as everywhere; [::] takes IPv4 too where the kernel
		// has IPv6, and 0.0.0.0 works everywhere.
		return net.JoinHostPort("0.0.0.0", fmt.Sprint(a.Port)), nil
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return "", usageError(fmt.Sprintf("%s %s has no address", flag, addr))
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(a.Port)).String(), nil
}
