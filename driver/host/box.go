package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/driver/scope"
	"github.com/tend-run/tend/files"
	"github.com/tend-run/tend/process"
)

// box implements driver.Sandbox. Lock order: box.mu before Driver.mu.
type box struct {
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

var _ driver.Sandbox = (*box)(nil)

func (d *Driver) newBox(rec record) *box {
	return &box{d: d, id: rec.ID, rec: rec, active: time.Now()}
}

// home is the directory with all that is kept of the sandbox.
func (b *box) home() string { return filepath.Join(b.d.cfg.Dir, string(b.id)) }

// make makes the directories and the record. b.mu is held.
func (b *box) make() error {
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
func (b *box) user() string {
	if b.rec.User != "" {
		return b.rec.User
	}
	return b.d.cfg.DefaultUser
}

func (b *box) isGone() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone || b.rec.Destroying
}

// Info implements driver.Sandbox.
func (b *box) Info(context.Context) (driver.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.rec.Destroying {
		return driver.Info{}, driver.ErrNotFound
	}
	return b.info(), nil
}

func (b *box) info() driver.Info {
	r := &b.rec
	info := driver.Info{
		ID: r.ID, Name: r.Name, State: driver.Ready, Dir: r.Work,
		Run: driver.RunConfig{User: r.User, Dir: r.Dir, Env: maps.Clone(r.Env)},
		Env: maps.Clone(r.OverEnv), Disposable: r.Disposable,
		IdleTTL: r.IdleTTL, DeleteAfterStop: r.DeleteAfterStop,
		Deadline: r.Deadline, Wake: r.Wake, Isolation: driver.IsolationNone,
		Network: driver.Network{Mode: driver.NetworkHost, Public: r.Public},
		Created: r.Created, Updated: r.Updated, StoppedAt: r.StoppedAt,
		Metadata: maps.Clone(r.Metadata), Notes: maps.Clone(r.Notes),
	}
	if r.PauseAtDeadline {
		info.AtDeadline = driver.ActionPause
	}
	if !r.StoppedAt.IsZero() {
		info.State = driver.Stopped
	}
	return info
}

// change applies f to the record and keeps it.
func (b *box) change(f func(r *record) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.rec.Destroying {
		return driver.ErrNotFound
	}
	next := b.rec
	next.Env, next.Metadata, next.Notes = maps.Clone(next.Env), maps.Clone(next.Metadata), maps.Clone(next.Notes)
	if err := f(&next); err != nil {
		return err
	}
	next.Updated = time.Now().UTC()
	if err := next.write(b.home()); err != nil {
		return err
	}
	b.rec = next
	return nil
}

// Update implements driver.Sandbox.
func (b *box) Update(ctx context.Context, c driver.Change) (driver.Info, error) {
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
	err := b.change(func(r *record) error {
		apply(r, &c)
		if c.Name == nil {
			return nil
		}
		b.d.mu.Lock()
		defer b.d.mu.Unlock()
		if other := b.d.byName[*c.Name]; other != nil && other != b {
			return fmt.Errorf("%q: %w", *c.Name, driver.ErrExists)
		}
		delete(b.d.byName, r.Name)
		b.d.byName[*c.Name] = b
		r.Name = *c.Name
		return nil
	})
	if err != nil {
		return driver.Info{}, err
	}
	b.d.due.Set(b.deadline())
	return b.Info(ctx)
}

func apply(r *record, c *driver.Change) {
	if c.IdleTTL != nil {
		r.IdleTTL = *c.IdleTTL
	}
	if c.DeleteAfterStop != nil {
		r.DeleteAfterStop = *c.DeleteAfterStop
	}
	scope.Reschedule(&r.Deadline, c)
	if c.AtDeadline != nil {
		r.PauseAtDeadline = *c.AtDeadline == driver.ActionPause
	}
	if c.Network != nil {
		r.Public = c.Network.Public
	}
	if len(c.Metadata) > 0 {
		if r.Metadata == nil {
			r.Metadata = map[string]string{}
		}
		maps.Copy(r.Metadata, c.Metadata)
	}
	r.Notes = scope.Merge(r.Notes, c.Notes)
	if c.Run == nil {
		return
	}
	if c.Run.User != "" {
		r.User = c.Run.User
	}
	if c.Run.Dir != "" {
		r.Dir = c.Run.Dir
	}
	if len(c.Run.Env) > 0 {
		if r.Env == nil {
			r.Env = map[string]string{}
		}
		maps.Copy(r.Env, c.Run.Env)
	}
}

// Start implements driver.Controller.
func (b *box) Start(ctx context.Context) error {
	b.touch()
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
	return b.change(func(r *record) error {
		if r.StoppedAt.IsZero() {
			return nil // another start was first
		}
		if r.Disposable {
			if err := b.clear(); err != nil {
				return err
			}
		}
		r.StoppedAt = time.Time{}
		if !r.Deadline.After(time.Now()) {
			r.Deadline = time.Time{} // it passed while the sandbox was stopped
		}
		return nil
	})
}

// clear makes the sandbox's own directory anew. b.mu is held.
func (b *box) clear() error {
	if err := b.removeWork(b.rec.Work, b.user()); err != nil {
		return fmt.Errorf("files of sandbox %s: %w", b.id, err)
	}
	if err := b.makeWork(); err != nil {
		return fmt.Errorf("files of sandbox %s: %w", b.id, err)
	}
	return nil
}

// Stop implements driver.Controller.
func (b *box) Stop(ctx context.Context) error {
	// First the state: what is started after this is refused.
	err := b.change(func(r *record) error {
		if r.StoppedAt.IsZero() {
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.rec.Disposable || b.rec.StoppedAt.IsZero() || b.gone || b.rec.Destroying {
		return nil
	}
	return b.clear()
}

// Destroy implements driver.Controller.
func (b *box) Destroy(ctx context.Context) error {
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
	b.gone = true
	b.mu.Unlock()
	b.d.forget(b)
	b.d.log.Info("sandbox destroyed", slog.String("id", string(b.id)))
	return nil
}

// awaitStarts returns when each start that has not seen the new state is over.
func (b *box) awaitStarts() {
	b.starting.Lock()
	defer b.starting.Unlock()
}

// end kills the processes of the sandbox, and removes the finished ones with
// their output if remove is set.
func (b *box) end(ctx context.Context, remove bool) error {
	b.awaitStarts()
	infos, err := b.d.cfg.Manager.List(ctx, process.Filter{Labels: map[string]string{Label: string(b.id)}, Live: !remove})
	if err != nil {
		return err
	}
	var errs []error
	var mu sync.Mutex
	var wg sync.WaitGroup
	gate := make(chan struct{}, 16)
	for _, info := range infos {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if err := b.endOne(ctx, info.ID, remove); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (b *box) endOne(ctx context.Context, id process.ID, remove bool) error {
	p, err := b.d.cfg.Manager.Get(ctx, process.Selector{ID: id})
	if errors.Is(err, process.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// On a finished process this ends what is left of its tree.
	if _, err := p.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrNotFound) {
		return err
	}
	if !remove {
		return nil
	}
	if _, err := p.Wait(ctx, process.Until{}); err != nil && !errors.Is(err, process.ErrNotFound) {
		return err
	}
	if err := p.Remove(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
		return err
	}
	return nil
}

// expire ends the sandbox if its time is up.
func (b *box) expire(ctx context.Context, now time.Time) error {
	b.mu.Lock()
	rec, active := b.rec, b.active
	b.mu.Unlock()
	switch {
	case rec.Destroying:
		return b.Destroy(ctx)
	case !rec.StoppedAt.IsZero():
		if rec.DeleteAfterStop > 0 && now.Sub(rec.StoppedAt) >= rec.DeleteAfterStop {
			return b.Destroy(ctx)
		}
		return nil
	case !rec.Deadline.IsZero() && !now.Before(rec.Deadline):
		if rec.PauseAtDeadline {
			return b.Stop(ctx)
		}
		return b.Destroy(ctx)
	case rec.IdleTTL == 0 || now.Sub(active) < rec.IdleTTL:
		return nil
	}
	live, err := b.d.cfg.Manager.List(ctx, process.Filter{Labels: map[string]string{Label: string(b.id)}, Live: true})
	if err != nil {
		return err
	}
	if len(live) > 0 {
		b.touch()
		return nil
	}
	return b.Stop(ctx)
}

// deadline is when the sandbox is to be looked at; zero: at no certain time.
func (b *box) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !b.rec.StoppedAt.IsZero() {
		return time.Time{}
	}
	return b.rec.Deadline
}

func (b *box) touch() {
	b.mu.Lock()
	b.active = time.Now()
	b.mu.Unlock()
}

// Processes implements driver.Access.
func (b *box) Processes() process.Manager { return &scoped{inner: b.d.cfg.Manager, box: b} }

// User implements driver.Access. The home is the working directory: relative paths
// start there, and ~ is the home of none.
func (b *box) User(name string) (files.User, error) {
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
func (b *box) Files(user, dir string) (driver.Files, error) {
	b.touch()
	u, err := b.User(user)
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return nil, err
	}
	return files.FS{User: u, Workdir: dir}, nil
}

// dir is the working directory of what names none. b.mu is held.
func (b *box) dir() string {
	if b.rec.Dir != "" {
		return b.rec.Dir
	}
	return b.rec.Work
}

// Dial implements driver.Access: the sandbox's ports are the machine's.
func (b *box) Dial(ctx context.Context, port int) (net.Conn, error) {
	b.touch()
	return dial(ctx, port)
}
