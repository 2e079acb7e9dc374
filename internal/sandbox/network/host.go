package network

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Config of a Host. The zero value is useful.
type Config struct {
	// Outside is the network that sandboxes reach. nil: the process's own.
	Outside *Space
	// ResolvConf names the servers that questions for names go to. Empty:
	// /etc/resolv.conf.
	ResolvConf string
	// Deny lists the addresses that no sandbox may reach, besides those that are never
	// reachable. Reach lists exceptions from Deny; a rule in it for one port of one
	// address also opens an address that is otherwise never reachable, such as one of this
	// machine. Both take precedence over a sandbox's own rules.
	Reach, Deny []Rule
	// Own are the daemon's own ports on this machine, which no rule opens.
	Own []uint16
	// Connections of all sandboxes together, and flows of UDP. 0: DefaultConnections, or
	// what half of the process's descriptors allow.
	Connections int
	Log         *slog.Logger // nil: nothing is logged
}

// Limits for one sandbox, and for all of them.
const (
	DefaultConnections = 16384
	// perConnection is how many descriptors a connection takes at most: a socket at each
	// end, and a pipe in each direction that is spliced.
	perConnection = 6
	// MaxConnections is how many one sandbox has at a time, and not more than a quarter of
	// all. MaxFlows is how many flows of UDP it has beside them.
	MaxConnections = 1024
	MaxFlows       = 256
	// reserved is how many connections and flows a sandbox has also when others have
	// taken theirs; half as many more than all may have are left for that.
	reserved = 32
	// perSecond is how many of them it begins in a second, and at once.
	perSecond = 500
	// maxQuestions is how many names it looks up at a time.
	maxQuestions = 64
)

// Host opens the networks of sandboxes on one machine.
type Host struct {
	cfg      Config
	log      *slog.Logger
	resolver resolver
	used     atomic.Int64 // connections and flows
	sniff    time.Duration
	most     int // connections of one sandbox
	v6       bool
	asked    sync.Once // of v6

	probe    func() error
	probing  sync.Mutex
	probed   time.Time // zero: never; guarded by probing, as is why
	why      error
	interval time.Duration
}

// NewHost returns a host.
func NewHost(cfg Config) *Host {
	cfg.Connections = cmp.Or(cfg.Connections, connectionsFor(openFiles()))
	h := &Host{cfg: cfg, log: cfg.Log, sniff: sniffTime, most: min(MaxConnections, max(reserved, cfg.Connections/4))}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.resolver = resolver{path: cmp.Or(cfg.ResolvConf, "/etc/resolv.conf"), outside: cfg.Outside}
	h.probe, h.interval = probe, probeAgain
	if len(cfg.Reach) == 0 && (&Policy{Deny: cfg.Deny}).Closed() {
		h.probe = func() error { return errClosed }
	}
	return h
}

// connectionsFor is how many connections take half of a process's descriptors. The rest
// is for the server's other clients, files and processes.
func connectionsFor(files uint64) int {
	return int(min(DefaultConnections, max(reserved, files/2/perConnection)))
}

// probeAgain is how long a failure that may pass is taken for what is so.
const probeAgain = 10 * time.Second

// Unable returns why sandboxes have no way out on this machine; nil: they have one. It
// finds out once, and again later if it failed because a resource was temporarily
// missing.
func (h *Host) Unable() error {
	h.probing.Lock()
	defer h.probing.Unlock()
	if h.probed.IsZero() || mayPass(h.why) && time.Since(h.probed) >= h.interval {
		h.why, h.probed = h.probe(), time.Now()
	}
	return h.why
}

// mayPass reports whether what failed may work a while later.
func mayPass(err error) bool {
	for _, e := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC, syscall.EAGAIN, syscall.EINTR,
		syscall.EBUSY, syscall.EUSERS,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// hasIPv6 reports whether sandboxes have a way out by IPv6.
func (h *Host) hasIPv6() bool {
	h.asked.Do(func() { h.v6 = h.cfg.Outside.hasIPv6() })
	return h.v6
}

// acquire takes a place for a connection or flow of a sandbox that has some already.
func (h *Host) acquire(has int) bool {
	used, all := h.used.Add(1), int64(h.cfg.Connections)
	if used <= all || has < reserved && used <= all+all/2 {
		return true
	}
	h.used.Add(-1)
	return false
}

func (h *Host) give() { h.used.Add(-1) }

var errClosed = errors.New("the daemon was told to let sandboxes reach nothing")

// errRefused: the sandbox may not go there.
var errRefused = errors.New("not allowed")
