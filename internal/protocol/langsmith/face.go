package langsmith

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/budget"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

const (
	// stopGrace is how long connections get to say that the server stops.
	stopGrace = time.Second
	// defaultConnections is the most WebSockets of this face at a time.
	defaultConnections = 10_000
	// sweepMapsEvery is how often maps of removed commands are looked for.
	sweepMapsEvery = 10 * time.Minute
	// dataPath begins the paths of the data plane.
	dataPath   = "/langsmith/"
	secretName = "secret"
)

// Config of the face. Driver is required.
type Config struct {
	// Driver of the sandboxes. No two of their processes have one ID.
	Driver driver.Driver
	// Token returns the key that callers must show, as X-Api-Key or as a
	// bearer token; nil, or a token that is not set: none.
	Token func() protocol.Token
	// Trusted reports whether a caller needs no key; nil: every caller needs one.
	Trusted func(*http.Request) bool
	// Dir stores the secret for links and the maps of long output. It is created if it is
	// missing. Empty: links end with this face, and maps are computed again.
	Dir string
	// PublicURL is the address of this server for clients: http://host:port, without a path
	// at its end. Empty: the address of the request (Host, X-Forwarded-*).
	PublicURL string
	// Proxies in front of this server.
	Proxies protocol.Proxies
	// MaxConnections bounds the WebSockets. 0: 10,000.
	MaxConnections int
	// Budget of what is held for clients; nil: no bound.
	Budget *budget.Budget
	// MessageTime bounds how long a large message may take to arrive. 0: 5 minutes.
	MessageTime time.Duration

	Log *slog.Logger // nil: nothing is logged
}

// Face serves the protocol.
type Face struct {
	driver    driver.Driver
	token     func() protocol.Token
	trusted   func(*http.Request) bool
	dir       string
	publicURL string
	proxies   protocol.Proxies
	maxConns  int
	budget    *budget.Budget
	msgTime   time.Duration // of Config.MessageTime
	secret    []byte
	log       *slog.Logger

	ctx      context.Context // ends with Close; parent of the sessions, which outlive their requests
	cancel   context.CancelCauseFunc
	sessions sync.WaitGroup
	// Input that was read is fed though its session has ended; feeding ends
	// this context only when it takes too long.
	feeding     context.Context
	stopFeeding context.CancelFunc
	inputs      sync.WaitGroup

	mu      sync.Mutex
	closing bool                       // guarded by mu
	conns   map[net.Conn]struct{}      // of the sessions; guarded by mu
	places  int                        // taken, by sessions and by those that are just being opened; guarded by mu
	clients map[process.ID]int         // connections of each command; guarded by mu
	maps    map[mapKey]*textMap        // in use; guarded by mu
	queues  map[process.ID]*inputQueue // in use; guarded by mu
}

// New returns the face. Close it when the server stops.
func New(c Config) (*Face, error) {
	if c.Driver == nil {
		return nil, errors.New("langsmith: a driver is needed")
	}
	f := &Face{
		driver: c.Driver, token: c.Token, trusted: c.Trusted, dir: c.Dir, maxConns: cmp.Or(c.MaxConnections, defaultConnections),
		budget: c.Budget, msgTime: cmp.Or(c.MessageTime, messageTime),
		publicURL: strings.TrimRight(c.PublicURL, "/"), proxies: c.Proxies, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		conns: map[net.Conn]struct{}{}, clients: map[process.ID]int{}, maps: map[mapKey]*textMap{}, queues: map[process.ID]*inputQueue{},
	}
	if f.token == nil {
		f.token = func() protocol.Token { return "" }
	}
	if f.trusted == nil {
		f.trusted = func(*http.Request) bool { return false }
	}
	if err := f.loadSecret(); err != nil {
		return nil, err
	}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.feeding, f.stopFeeding = context.WithCancel(context.Background())
	f.sessions.Go(f.housekeep)
	return f, nil
}

// loadSecret reads what links are signed with, or makes it. A power loss just
// after may make older links void.
func (f *Face) loadSecret() error {
	f.secret = make([]byte, 32)
	rand.Read(f.secret)
	if f.dir == "" {
		return nil
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("langsmith: %w", err)
	}
	path := filepath.Join(f.dir, secretName)
	b, err := atomicfile.Read(path, 1<<10)
	if err == nil && len(b) == len(f.secret) {
		f.secret = b
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("langsmith: %w", err)
	}
	if err := atomicfile.File(path, f.secret, 0o600); err != nil {
		return fmt.Errorf("langsmith: keep the secret of links: %w", err)
	}
	return nil
}

func (f *Face) housekeep() {
	if f.dir == "" {
		return
	}
	tick := time.NewTicker(sweepMapsEvery)
	defer tick.Stop()
	for {
		f.sweepMaps(f.ctx)
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
	}
}

var (
	_ module.Router   = (*Face)(nil)
	_ module.Streamer = (*Face)(nil)
	_ module.Reporter = (*Face)(nil)
	_ io.Closer       = (*Face)(nil)
)

// Name implements [module.Part].
func (f *Face) Name() string { return "langsmith" }

// Routes implements [module.Router].
func (f *Face) Routes() (routes []module.Route) {
	// Two prefixes: the generated OpenAPI clients use the second (§1).
	for _, prefix := range []string{"/v2/sandboxes", "/api/v2/sandboxes"} {
		for _, resource := range []string{"boxes", "snapshots", "snapshots-by-name", "registries", "usage"} {
			h := f.needsKey(http.StripPrefix(prefix, f.controlPlane()))
			for _, pattern := range []string{prefix + "/" + resource, prefix + "/" + resource + "/"} {
				routes = append(routes, module.Route{Pattern: pattern, Handler: h, Access: module.Own})
			}
		}
	}
	return append(routes, module.Route{Pattern: dataPath, Handler: f.dataPlane(), Access: module.Own, Body: bodyOf, Secret: CarriesToken})
}

// bodyOf: uploads and requests to a service go on as they come.
func bodyOf(path string) module.Body {
	if strings.HasSuffix(path, "/upload") || strings.Contains(path, "/service/") {
		return module.File
	}
	return module.Fields
}

// needsKey refuses callers that do not show the key, if there is one.
func (f *Face) needsKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := f.token()
		if token.Set() && !f.trusted(r) && !token.Matches(r.Header.Get("X-Api-Key")) && !token.Matches(protocol.Bearer(r)) {
			writeError(w, http.StatusUnauthorized, kindUnauthorized, "this server needs its key: set LANGSMITH_API_KEY, which is sent as X-Api-Key")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// begin runs a session on a connection that was taken over and has a place; it
// calls ended at its end. begin reports false if the face is closing, and then
// does nothing but give the place back.
func (f *Face) begin(conn net.Conn, run func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		f.places--
		return false
	}
	f.conns[conn] = struct{}{}
	// Under the lock, so that Close does not wait before it is counted.
	f.sessions.Go(run)
	return true
}

func (f *Face) ended(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
	f.places--
}

// takePlace reports whether one more connection may be opened; begin or
// leavePlace is called for it then.
func (f *Face) takePlace() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.places >= f.maxConns {
		return false
	}
	f.places++
	return true
}

func (f *Face) leavePlace() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places--
}

// Streams implements [module.Streamer]: how many connections of its own the face serves.
func (f *Face) Streams() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places
}

// Status implements [module.Reporter].
func (f *Face) Status() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return map[string]string{"connections": strconv.Itoa(f.places), "commands attached": strconv.Itoa(len(f.clients))}
}

// Close tells the clients that the server stops, and returns when their connections have
// ended. The commands continue.
func (f *Face) Close() error {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	f.cancel(errStopping)
	timer := time.AfterFunc(stopGrace, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for conn := range f.conns {
			conn.Close()
		}
	})
	defer timer.Stop()
	f.sessions.Wait()
	late := time.AfterFunc(stopGrace, f.stopFeeding)
	defer late.Stop()
	f.inputs.Wait()
	f.stopFeeding()
	return nil
}
