package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/process"
)

// sandbox implements driver.Sandbox. Its lock is taken before that of the registry.
type sandbox struct {
	d  *Driver
	id driver.ID

	// starting is held for reading by starts. The end of all processes locks it
	// once, so that it misses no start that is under way.
	starting sync.RWMutex

	mu     sync.Mutex
	rec    record    // guarded by mu, but for ID
	gone   bool      // destroyed; guarded by mu
	active time.Time // last used; guarded by mu
}

var _ driver.Sandbox = (*sandbox)(nil)

func (d *Driver) newSandbox(rec record) *sandbox {
	return &sandbox{d: d, id: rec.ID, rec: rec, active: time.Now()}
}

// home is the directory with all that is kept of the sandbox.
func (b *sandbox) home() string { return filepath.Join(b.d.cfg.Dir, string(b.id)) }

// make makes the directories and the record. b.mu is held.
func (b *sandbox) make() error {
	if err := os.Mkdir(b.home(), 0o700); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if err := b.makeWork(); err != nil {
		return fmt.Errorf("working directory of the sandbox: %w", err)
	}
	return b.rec.write(b.home())
}

func badUser(err error) error {
	return &driver.InvalidError{Field: "run.user", Reason: fmt.Sprintf("cannot be used: %v", err)}
}

// user returns the user of processes that name none. b.mu is held.
func (b *sandbox) user() string {
	if b.rec.User != "" {
		return b.rec.User
	}
	return b.d.cfg.DefaultUser
}

func (b *sandbox) isGone() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone || b.rec.Destroying
}

// Info implements driver.Sandbox.
func (b *sandbox) Info(context.Context) (driver.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.rec.Destroying {
		return driver.Info{}, driver.ErrNotFound
	}
	return b.info(), nil
}

func (b *sandbox) info() driver.Info {
	info := b.rec.Info()
	info.Dir, info.Isolation, info.Network.Mode = b.rec.Work, driver.IsolationNone, driver.NetworkHost
	return info
}

// change applies f to the record and keeps it.
func (b *sandbox) change(f func(r *record) error) error {
	return b.changeThen(f, func(*record) {})
}

// changeThen is change, and calls then with b.mu held: what it tells comes before what
// follows from the change.
func (b *sandbox) changeThen(f func(r *record) error, then func(before *record)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.rec.Destroying {
		return driver.ErrNotFound
	}
	next := b.rec
	if err := f(&next); err != nil {
		return err
	}
	next.Updated = time.Now().UTC()
	if err := next.write(b.home()); err != nil {
		return err
	}
	before := b.rec
	b.rec = next
	b.d.sandboxes.Changed(&next.Record)
	then(&before)
	return nil
}

// Update implements driver.Sandbox.
func (b *sandbox) Update(ctx context.Context, c driver.Change) (driver.Info, error) {
	if err := c.Validate(); err != nil {
		return driver.Info{}, err
	}
	if c.Network != nil {
		if err := refuseNetwork(c.Network); err != nil {
			return driver.Info{}, err
		}
	}
	if c.Run != nil && c.Run.User != "" {
		if _, err := lookup(c.Run.User); err != nil {
			return driver.Info{}, badUser(err)
		}
	}
	err := b.changeThen(func(r *record) error {
		r.Apply(&c)
		if err := b.d.sandboxes.Room(&r.Record); err != nil {
			return err
		}
		if c.Name == nil {
			return nil
		}
		from := r.Name
		r.Name = *c.Name
		return b.d.sandboxes.Rename(b.id, from, r.Name)
	}, func(before *record) {
		info := b.info()
		if deadline := !info.Deadline.Equal(before.Deadline); info.State == driver.Ready && (deadline || c.Network != nil) {
			b.d.cfg.Tell.Of(driver.EventUpdated, info, func(e *driver.Event) { e.Deadline, e.Network = deadline, c.Network != nil })
		}
	})
	if err != nil {
		return driver.Info{}, err
	}
	info, err := b.Info(ctx) // before the clock looks at a deadline that may be over
	b.d.clock.Set(b.deadline())
	return info, err
}

// Start implements driver.Controller.
func (b *sandbox) Start(ctx context.Context) error {
	b.Touch()
	b.mu.Lock()
	running := b.rec.StoppedAt.IsZero() && !b.gone && !b.rec.Destroying
	b.mu.Unlock()
	if running {
		return nil
	}
	// A stop that was cut short may have left processes: they end now.
	if err := b.end(ctx, false); err != nil {
		return err
	}
	started := false
	err := b.change(func(r *record) error {
		if r.StoppedAt.IsZero() {
			return nil // another start was first
		}
		if r.Disposable {
			if err := b.clear(); err != nil {
				return err
			}
		}
		r.Started()
		started = true
		return nil
	})
	if started && err == nil {
		b.told(driver.EventResumed, nil)
	}
	return err
}

// told tells of an event.
func (b *sandbox) told(kind driver.EventKind, more func(*driver.Event)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.d.cfg.Tell.Of(kind, b.info(), more)
}

// clear makes the sandbox's own directory again. b.mu is held.
func (b *sandbox) clear() error {
	if err := b.removeWork(b.rec.Work, b.user()); err != nil {
		return fmt.Errorf("files of sandbox %s: %w", b.id, err)
	}
	if err := b.makeWork(); err != nil {
		return fmt.Errorf("files of sandbox %s: %w", b.id, err)
	}
	return nil
}

// Stop implements driver.Controller.
func (b *sandbox) Stop(ctx context.Context) error {
	// First the state: what is started after this is refused.
	stopped := false
	err := b.change(func(r *record) error {
		if stopped = r.StoppedAt.IsZero(); stopped {
			r.StoppedAt = time.Now().UTC()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.end(ctx, false); err != nil {
		return err
	}
	if stopped {
		b.told(driver.EventPaused, nil)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.rec.Disposable || b.rec.StoppedAt.IsZero() || b.gone || b.rec.Destroying {
		return nil
	}
	return b.clear()
}

// Destroy implements driver.Controller.
func (b *sandbox) Destroy(ctx context.Context) error {
	return b.destroy(ctx, driver.DestroyedByRequest)
}

// destroy is Destroy for a reason.
func (b *sandbox) destroy(ctx context.Context, reason string) error {
	b.mu.Lock()
	if b.gone {
		b.mu.Unlock()
		return nil
	}
	if !b.rec.Destroying {
		next := b.rec
		next.Destroying = true
		if err := next.write(b.home()); err != nil {
			b.mu.Unlock()
			return err
		}
		b.rec = next
	}
	work, owner := b.rec.Work, b.user()
	b.mu.Unlock()
	if err := b.end(ctx, true); err != nil {
		return err
	}
	// The record goes last: until then the next server finds what is left.
	if work != "" {
		if err := b.removeWork(work, owner); err != nil {
			return fmt.Errorf("files of sandbox %s: %w", b.id, err)
		}
	}
	if err := os.RemoveAll(b.home()); err != nil {
		return fmt.Errorf("sandbox %s: %w", b.id, err)
	}
	b.mu.Lock()
	if !b.gone {
		b.d.cfg.Tell.Of(driver.EventDestroyed, b.info(), func(e *driver.Event) { e.Reason = reason })
	}
	b.gone = true
	b.mu.Unlock()
	b.d.sandboxes.Remove(b.id)
	b.d.log.Info("sandbox destroyed", slog.String("id", string(b.id)))
	return nil
}

// awaitStarts returns when each start that has not seen the new state is over.
func (b *sandbox) awaitStarts() {
	b.starting.Lock()
	defer b.starting.Unlock()
}

// end kills the processes of the sandbox, and removes the finished ones with
// their output if remove is set.
func (b *sandbox) end(ctx context.Context, remove bool) error {
	b.awaitStarts()
	return sandboxrecord.End(ctx, b.d.cfg.Manager, b.id, remove)
}

// expire ends the sandbox if its time is up.
func (b *sandbox) expire(ctx context.Context, now time.Time) error {
	b.mu.Lock()
	rec, active := b.rec, b.active
	b.mu.Unlock()
	switch rec.Due(now) {
	case sandboxrecord.DueDestroy:
		reason := driver.DestroyedAtTime
		if rec.Destroying {
			reason = driver.DestroyedAgain
		}
		return b.destroy(ctx, reason)
	case sandboxrecord.DuePause:
		return b.Stop(ctx)
	}
	if !rec.StoppedAt.IsZero() || rec.IdleTTL == 0 || now.Sub(active) < rec.IdleTTL {
		return nil
	}
	live, err := sandboxrecord.List(ctx, b.d.cfg.Manager, b.id, true)
	if err != nil {
		return err
	}
	if len(live) > 0 {
		b.Touch()
		return nil
	}
	return b.Stop(ctx)
}

// deadline is when the sandbox is to be looked at; zero: at no certain time.
func (b *sandbox) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return time.Time{}
	}
	return b.rec.Ends()
}

// Touch implements sandboxrecord.Entrance.
func (b *sandbox) Touch() {
	b.mu.Lock()
	b.active = time.Now()
	b.mu.Unlock()
}

// Processes implements driver.Access.
func (b *sandbox) Processes() process.Manager {
	return sandboxrecord.Processes(b.d.cfg.Manager, b.id, b)
}

// Enter implements sandboxrecord.Entrance.
func (b *sandbox) Enter(_ context.Context, spec *process.Spec) (leave func(), err error) {
	b.starting.RLock()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.gone || b.rec.Destroying:
		err = driver.ErrNotFound
	case !b.rec.StoppedAt.IsZero():
		err = driver.ErrStopped
	}
	if err != nil {
		b.starting.RUnlock()
		return nil, err
	}
	if spec.User == "" {
		spec.User = b.user()
	}
	if spec.Dir == "" {
		spec.Dir = b.dir()
	}
	if u, err := lookup(spec.User); err == nil {
		if err := b.letIn(u.UID); err != nil {
			b.d.log.Warn("user not let into the sandbox", slog.String("id", string(b.id)), slog.String("user", spec.User), slog.Any("err", err))
		}
	} // else the manager says what is wrong with the user
	spec.Env = b.rec.Environ(spec.Env)
	return b.starting.RUnlock, nil
}

// User implements driver.Access. The home is the working directory: relative paths
// start there, and ~ is the home of none.
func (b *sandbox) User(name string) (files.User, error) {
	b.mu.Lock()
	if name == "" {
		name = b.user()
	}
	dir := b.dir()
	b.mu.Unlock()
	u, err := files.Account(name)
	u.Home = dir
	return u, err
}

// Files implements driver.Access.
func (b *sandbox) Files(user, dir string) (driver.Files, error) {
	b.Touch()
	u, err := b.User(user)
	return filesOf(u, err, dir)
}

// dir is the working directory of what names none. b.mu is held.
func (b *sandbox) dir() string {
	if b.rec.Dir != "" {
		return b.rec.Dir
	}
	return b.rec.Work
}

// Dial implements driver.Access: the sandbox's ports are the machine's.
func (b *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	b.Touch()
	return dial(ctx, port)
}
