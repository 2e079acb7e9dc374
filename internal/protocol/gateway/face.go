package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
)

// Config of the gateway. Dir is required.
type Config struct {
	// Dir stores keys, reports and usage. It is created if it is missing.
	Dir string
	// Providers is a file of providers and their keys; it is read again after a change.
	// Empty: there are none, and keys are only for reports.
	Providers string
	// Extend extends the lifetime of a sandbox. nil: not supported.
	Extend func(ctx context.Context, sandbox string) error
	// Budget of what is held for clients; nil: no bound.
	Budget *budget.Budget
	// Now is the clock; nil: the machine's.
	Now func() time.Time
	Log *slog.Logger // nil: nothing is logged
}

// Face serves the gateway.
type Face struct {
	keys      *keys
	reports   *reports
	ledger    *ledger
	providers *providers
	transport http.RoundTripper
	prolongs  func(ctx context.Context, sandbox string) error
	budget    *budget.Budget
	places    *budget.Budget // has one for each request that is passed on
	now       func() time.Time
	log       *slog.Logger
	wg        sync.WaitGroup // of sandboxes that are told to live on
	open      context.Context
	end       context.CancelFunc // of open

	mu     sync.Mutex
	closed bool               // guarded by mu; wg grows no more
	visits map[string]*visits // by key; guarded by mu
	coming []*arrival         // bodies that arrive, of all keys; guarded by mu
}

var (
	_ module.Router   = (*Face)(nil)
	_ module.Reporter = (*Face)(nil)
)

// Open returns the gateway.
func Open(c Config) (*Face, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	f := &Face{
		keys: openKeys(c.Dir), reports: &reports{path: filepath.Join(c.Dir, "reports.json")}, providers: &providers{path: c.Providers},
		prolongs: c.Extend, budget: c.Budget, places: budget.New(mostOfAll), now: c.Now, log: c.Log,
		visits: map[string]*visits{},
	}
	if f.now == nil {
		f.now = time.Now
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.open, f.end = context.WithCancel(context.Background())
	f.ledger = openLedger(c.Dir, f.now)
	// Of its own: the proxy of the environment is the operator's, and idle connections
	// to a provider are kept.
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.ResponseHeaderTimeout, t.MaxResponseHeaderBytes = 32, maxTime, protocol.MaxAnswerHeader
	f.transport = t
	return f, nil
}

// Name implements [module.Part].
func (f *Face) Name() string { return "gateway" }

// Routes implements [module.Router].
func (f *Face) Routes() []module.Route {
	data := func(string) module.Body { return module.Data }
	return []module.Route{
		{Pattern: pathPrefix, Handler: http.HandlerFunc(f.pass), Access: module.Own, Body: data},
		{Pattern: "POST /api/sandbox/heal", Handler: f.keyed(f.heal), Access: module.Own},
		{Pattern: "GET /api/sandbox/status", Handler: f.keyed(f.status), Access: module.Own},
		{Pattern: "POST /api/sandbox/retry", Handler: f.keyed(f.retry), Access: module.Own},
		{Pattern: "GET /api/sandbox/extend", Handler: f.keyed(f.prolong), Access: module.Own},
		{Pattern: "POST /api/sandbox/ready", Handler: f.keyed(gone), Access: module.Own},
	}
}

func gone(http.ResponseWriter, *http.Request, *Key) error {
	return &refusal{status: http.StatusGone, text: "report the status to /api/sandbox/heal"}
}

// Status implements [module.Reporter].
func (f *Face) Status() map[string]string {
	all, err := f.keys.list()
	if err != nil {
		return map[string]string{"trouble": err.Error()}
	}
	if len(all) == 0 && f.providers.path == "" {
		return map[string]string{}
	}
	return map[string]string{"keys": strconv.Itoa(len(all)), "requests": strconv.FormatInt(f.places.Used(), 10)}
}

// CreateKey creates a key. Its secret is returned only here. Errors: *process.InvalidError,
// process.ErrExists if the name is taken, process.ErrLimit.
func (f *Face) CreateKey(name string, rules Rules) (Key, string, error) {
	return f.keys.create(name, rules)
}

// RevokeKey invalidates a key, by its name or ID. Error: process.ErrNotFound.
func (f *Face) RevokeKey(which string) error { return f.keys.revoke(which) }

// KeyStatus is a key with its usage of today and its last report.
type KeyStatus struct {
	Key
	Used   Used
	Report Report
}

// Keys returns all keys, the oldest first.
func (f *Face) Keys() ([]KeyStatus, error) {
	all, err := f.keys.list()
	if err != nil {
		return nil, err
	}
	used, uerr := f.ledger.all()
	reported, rerr := f.reports.all()
	out := make([]KeyStatus, len(all))
	for i, k := range all {
		out[i] = KeyStatus{Key: k, Used: used[k.ID], Report: lastOf(reported, k.ID)}
	}
	return out, errors.Join(uerr, rerr)
}

const (
	// extendEvery is how often the sandbox of a key is told to live on, and extendTime
	// how long that may take; closeTime, how long after Close: the server drains for 2 s.
	extendEvery = time.Minute
	extendTime  = 10 * time.Second
	closeTime   = time.Second
)

// extend has the sandbox of a key live on, at most once a minute.
func (f *Face) extend(key *Key) {
	if key.Rules.Sandbox == "" || f.prolongs == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.visitsOf(key)
	if f.closed || f.now().Sub(v.extended) < extendEvery {
		return
	}
	v.extended = f.now()
	f.wg.Go(func() {
		ctx, cancel := context.WithTimeout(f.open, extendTime)
		defer cancel()
		if err := f.prolongs(ctx, key.Rules.Sandbox); err != nil {
			f.log.Warn("the sandbox of a key could not be told to live on", slog.String("key", key.Name), slog.Any("err", err))
		}
	})
}

// Close implements io.Closer. Requests may run still, and come.
func (f *Face) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	late := time.AfterFunc(closeTime, f.end)
	f.wg.Wait()
	late.Stop()
	f.end()
	if t, ok := f.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
	return nil
}
