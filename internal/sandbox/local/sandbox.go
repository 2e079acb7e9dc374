package local

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/process"
)

// sandbox implements driver.Sandbox. The locks are in the package comment.
type sandbox struct {
	d  *Driver
	id driver.ID

	// life is held while the sandbox changes between its states.
	life sync.Mutex
	// starting is held for reading by starts of processes. What ends or stops all
	// processes locks it once, so that it misses no start that is under way.
	starting sync.RWMutex

	mu        sync.Mutex
	rec       record         // guarded by mu, but for ID
	unsynced  bool           // the record may not be on the disk; guarded by mu
	hidden    bool           // its creation is not over; guarded by mu
	warming   bool           // it is hidden, and programs start all the same; guarded by mu
	gone      bool           // destroyed; guarded by mu
	active    time.Time      // last used; guarded by mu
	container container.Info // zero while there is none; guarded by mu
	root      *files.Root    // of container, opened at its first use; guarded by mu
	// usesNetwork: the network of container is configured; guarded by mu.
	usesNetwork bool
	// lacksWay: container has no way out because no network had one then; guarded by mu.
	lacksWay bool
	way      *network.Proxy // out of it; nil: there is none; guarded by mu
	doors    []net.Listener // inside, on localhost; guarded by mu
	meter    meter          // guarded by mu

	warm bool // its start command has run before its creation; set before that

	expiring atomic.Bool // its end at its time is under way

	copying layer.Progress // of its files, to a snapshot or for a fork
}

var (
	_ driver.Sandbox   = (*sandbox)(nil)
	_ driver.RootFiler = (*sandbox)(nil)
)

func (d *Driver) newSandbox(rec record) *sandbox {
	return &sandbox{d: d, id: rec.ID, rec: rec, active: time.Now()}
}

func (s *sandbox) dir() string { return filepath.Join(s.d.cfg.Dir, string(s.id)) }

func (s *sandbox) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone || s.hidden || s.rec.Destroying
}

// Info implements driver.Sandbox.
func (s *sandbox) Info(context.Context) (driver.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.hidden || s.rec.Destroying {
		return driver.Info{}, driver.ErrNotFound
	}
	in := s.rec.info()
	in.Copied, in.ToCopy = s.copying.Copied.Load(), s.copying.Total.Load()
	return in, nil
}

// change applies f to the record and keeps it. synced: it is on the disk then.
func (s *sandbox) change(synced bool, f func(r *record) error) error {
	return s.changeThen(synced, f, func(*record) {})
}

// changeThen is change, and calls then with s.mu held: what it tells comes before what
// follows from the change.
func (s *sandbox) changeThen(synced bool, f func(r *record) error, then func(before *record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.hidden || s.rec.Destroying {
		return driver.ErrNotFound
	}
	next := s.rec
	if err := f(&next); err != nil {
		return err
	}
	next.Updated = time.Now().UTC()
	if err := sandboxrecord.Write(s.dir(), &next, synced); err != nil {
		return err
	}
	before := s.rec
	s.rec, s.unsynced = next, !synced
	s.d.containers.Changed(&next.Record)
	then(&before)
	return nil
}

// Update implements driver.Sandbox.
func (s *sandbox) Update(ctx context.Context, c driver.Change) (driver.Info, error) {
	if err := c.Validate(); err != nil {
		return driver.Info{}, err
	}
	if c.Network != nil {
		if err := s.checkNetwork(c.Network); err != nil {
			return driver.Info{}, err
		}
	}
	home, err := s.newHome(&c)
	if err != nil {
		return driver.Info{}, err
	}
	err = s.changeThen(c.Deadline == nil && c.Extend == nil, func(r *record) error {
		r.Apply(&c)
		if err := s.d.containers.Room(&r.Record); err != nil {
			return err
		}
		if home != "" {
			r.Home = home
		}
		if c.Network != nil {
			r.rules(c.Network)
		}
		if c.Name == nil {
			return nil
		}
		from := r.Name
		r.Name = *c.Name
		return s.d.containers.Rename(s.id, from, r.Name)
	}, func(before *record) { s.updated(before.Deadline, c.Network != nil) })
	if err != nil {
		return driver.Info{}, err
	}
	if c.Network != nil {
		if err := s.applyRules(); err != nil {
			return driver.Info{}, fmt.Errorf("network of sandbox %s: %w", s.id, err)
		}
	}
	info, err := s.Info(ctx) // before the clock looks at a deadline that may be over
	s.d.clock.Set(s.deadline())
	return info, err
}

func (s *sandbox) checkNetwork(n *driver.Network) error {
	s.mu.Lock()
	mode := s.rec.Network
	s.mu.Unlock()
	if n.Mode != driver.NetworkDefault && n.Mode != mode {
		return &driver.InvalidError{Field: "network.mode", Reason: fmt.Sprintf("is %v; the sandbox was made with %v, which stays", n.Mode, mode)}
	}
	return s.d.refuseRules(n)
}

// newHome is the home of a user that is changed; "": it is not.
func (s *sandbox) newHome(c *driver.Change) (string, error) {
	if c.Run == nil || c.Run.User == "" {
		return "", nil
	}
	u, err := s.account(c.Run.User)
	if err != nil {
		return "", &driver.InvalidError{Field: "run.user", Reason: fmt.Sprintf("cannot be used: %v", err)}
	}
	return u.Home, nil
}

// deadline is when the sandbox is to be looked at; zero: at no certain time.
func (s *sandbox) deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || !s.rec.PausedAt.IsZero() {
		return time.Time{}
	}
	return s.rec.Ends()
}

// Touch implements sandboxrecord.Entrance.
func (s *sandbox) Touch() {
	s.mu.Lock()
	s.active = time.Now()
	s.mu.Unlock()
}

// meet compares what the record says with what the keeper has. It reports whether the
// container stays.
func (s *sandbox) meet(in container.Info, found bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.rec.live():
		return false // ended by the sweep, if it must be destroyed
	case found:
		s.container = in
		return true
	case !s.rec.PausedAt.IsZero():
		s.rec.Memory = false
	default:
		s.rec.stopped(s.endReason())
		s.d.log.Info("sandbox has stopped", slog.String("id", string(s.id)), slog.String("reason", s.rec.Reason))
	}
	s.unsynced = true
	return false
}

// endReason says why there is no container. s.mu is held.
func (s *sandbox) endReason() string {
	if s.rec.Boot != bootID() {
		return "the machine was restarted"
	}
	return "the daemon ended, or something outside ended the sandbox's first process"
}

// Processes implements driver.Access.
func (s *sandbox) Processes() process.Manager {
	return starter{sandboxrecord.Processes(s.d.cfg.Inside(inside{s}), s.id, s)}
}

// starter speaks of starts as this driver does.
type starter struct{ process.Manager }

func (st starter) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	p, err := st.Manager.Start(ctx, spec)
	if err != nil && isOfContainer(err) {
		err = fault(err)
	}
	return p, err
}

// Enter implements sandboxrecord.Entrance.
func (s *sandbox) Enter(ctx context.Context, spec *process.Spec) (leave func(), err error) {
	s.starting.RLock()
	s.mu.Lock()
	err = s.usable()
	r := &s.rec
	if spec.User == "" {
		spec.User = r.User
	}
	if spec.Dir == "" {
		spec.Dir = r.Dir
	}
	spec.Env = r.Environ(spec.Env)
	s.mu.Unlock()
	if err == nil {
		err = s.network(ctx)
	}
	if err != nil {
		s.starting.RUnlock()
		return nil, err
	}
	now := time.Now().UnixNano()
	s.d.spares.started.Store(now)
	s.d.warm.started.Store(now)
	return s.starting.RUnlock, nil
}

// usable reports why nothing can start. s.mu is held.
func (s *sandbox) usable() error {
	switch {
	case s.gone || (s.hidden && !s.warming) || s.rec.Destroying:
		return driver.ErrNotFound
	case !s.rec.PausedAt.IsZero():
		return driver.ErrPaused
	case !s.rec.StoppedAt.IsZero():
		return driver.ErrStopped
	}
	return nil
}
