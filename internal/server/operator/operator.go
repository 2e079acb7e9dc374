// Package operator has what the operator of a daemon has set. It is handed on as a whole; the
// server and each part take from it what is theirs.
package operator

import (
	"log/slog"
	"net"
	"net/url"
	"strconv"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/sandboxd"
	"github.com/tend-run/tend/internal/sandbox/network"
)

// Settings of a daemon. StateDir and Listeners are needed.
type Settings struct {
	// StateDir is an existing directory, owned by the server's user. Each part
	// that keeps something has a name of its own in it.
	StateDir string
	// Listeners of the HTTP server. The launcher holds them, too.
	Listeners []net.Listener
	// Distant is where distant's encrypted transport is served. nil: nowhere.
	Distant net.Listener
	// Sandboxd is how the protocol of agent-sandbox's runtime is served. nil: it is not.
	Sandboxd *sandboxd.Settings

	// Token that callers over TCP must send from the start. Empty: none. TokenFile is where
	// it is from: no sandbox that is isolated sees it.
	Token     protocol.Token
	TokenFile string
	// Group is the ID of a group whose members may call over unix sockets, beside the server's user and
	// root. 0: there is none.
	Group int
	// Insecure allows listeners other than loopback without a token, and callers from any
	// web page.
	Insecure bool
	// Domains below which sandboxes have host names (package internal/sandbox/route), and
	// callers may reach this server without a token, in lower case (server.CheckDomain).
	Domains []string
	// TLS is how the server itself answers to names below the first of Domains. Zero: it does not; a
	// proxy in front may.
	TLS TLS
	// Origins of web pages that may call this server without a token, beside its own
	// (server.CheckOrigin).
	Origins []string
	// Proxies in front of the server: what they say of a client is passed on to programs in sandboxes.
	Proxies protocol.Proxies

	// PortFile is a file to which the server writes its URL once it serves. Empty: none.
	PortFile string
	// URLFile is a file for the URL that callers on this machine should use: the unix
	// socket, if there is one. Empty: none.
	URLFile string

	// DefaultUser and DefaultWorkdir are for requests that name none. Empty: the
	// user the server runs as, and the user's home.
	DefaultUser, DefaultWorkdir string
	// Network is what sandboxes that are isolated reach. Its Own and Log are the daemon's.
	Network network.Config
	// BasePaths are directories of this machine that isolated sandboxes see beside programs and libraries.
	BasePaths []string
	// SharedProc: isolated sandboxes see this container's /proc where the kernel gives them none of their own.
	SharedProc bool
	// SandboxDisk is the disk of an isolated sandbox that asks for none, bytes; 0: it has no
	// limit.
	SandboxDisk int64
	// VolumeDisk is the disk of each volume that is made from now on, bytes; 0: it has no limit.
	VolumeDisk int64
	// ImagesMost is how many bytes images may have; 0: no limit.
	ImagesMost int64
	// Mirrors are asked for images before the registry that they stand for, by its host.
	Mirrors map[string][]*url.URL
	// ShareImages are names and patterns of images that callers of every protocol may have.
	ShareImages []string
	// NoSpare: no isolated sandbox is kept ready for the next creation.
	NoSpare bool
	// Providers is the file of the gateway's providers, an absolute path; empty: there are none.
	Providers string
	// ExitSecret signs the messages of exits; empty: they are not signed. ExitSecretFile is
	// where it is from.
	ExitSecret     []byte
	ExitSecretFile string

	// Program is tend, as it is started: for the workers that repair services, and for what
	// holds the sockets of services. Empty: nothing is repaired.
	Program []string
	Version string
	Log     *slog.Logger // nil: nothing is logged
}

// TLS is what the operator has set about TLS.
type TLS struct {
	// Mode is one of package certificates. Empty: there is no TLS.
	Mode string
	// Listeners of TCP. They are none of Settings.Listeners.
	Listeners []net.Listener
	// Port that clients use with the domain, 1 to 65535.
	Port int
	// CertFile and KeyFile are for the mode files, absolute paths.
	CertFile, KeyFile string
	// Directory is the URL of the ACME server, DNSHook an absolute path: for the mode acme.
	Directory, DNSHook string
}

// Authority is the domain as clients of TLS write it: with its port, unless that is 443.
func (s *Settings) Authority() string {
	if s.TLS.Port == 443 {
		return s.Domains[0]
	}
	return s.Domains[0] + ":" + strconv.Itoa(s.TLS.Port)
}
