package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// wanted is the container that the record asks for, and the size that it has.
func (s *sandbox) wanted() (container.Spec, driver.Size, error) {
	s.mu.Lock()
	asked := s.rec.Size
	asked.Disk = s.rec.Disk
	s.mu.Unlock()
	harden, size := s.d.harden(), s.d.enforced(asked) // joining comes before mu
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, err := s.containerSpec(size)
	spec.Harden = harden
	return spec, size, err
}

// begin makes the container. s.life is held.
func (s *sandbox) begin(ctx context.Context) error {
	spec, size, err := s.wanted()
	if err != nil {
		return err
	}
	if err := errors.Join(s.readyDisk(ctx), s.readyVolumes(ctx)); err != nil {
		return err
	}
	info, err := s.d.cfg.Engine.Make(ctx, spec)
	if err != nil {
		return s.ofVolumes(fault(err))
	}
	s.mu.Lock()
	s.container, s.usesNetwork, s.rec.Boot = info, false, bootID()
	s.rec.Enforced = size
	s.active = time.Now()
	s.meter.reset()
	s.mu.Unlock()
	if err = s.tell(ctx); err == nil {
		return nil
	}
	// Not by end, which waits for starts: a snapshot holds them.
	s.forgetRoot()
	err = errors.Join(err, s.d.cfg.Engine.End(ctx, container.ID(s.id)))
	s.mu.Lock()
	s.container = container.Info{}
	s.mu.Unlock()
	return err
}

// awaitStarts returns when each start that has not seen the record of now is over.
func (s *sandbox) awaitStarts() {
	s.starting.Lock()
	defer s.starting.Unlock()
}

// holdStarts returns when each start that has not seen the record of now is over; the
// next ones wait for release. A program inside can have a start hang for as long as it
// likes, so nothing but the end of the container waits for longer than startWait.
func (s *sandbox) holdStarts() (release func(), err error) {
	held, late := make(chan struct{}), make(chan struct{})
	go func() { // it ends with the start
		s.starting.Lock()
		select {
		case held <- struct{}{}:
		case <-late:
			s.starting.Unlock()
		}
	}()
	select {
	case <-held:
		return s.starting.Unlock, nil
	case <-time.After(s.d.startWait):
		close(late)
		return nil, fmt.Errorf("sandbox %s: %w", s.id, errStartHangs)
	}
}

// startWait is how long a pause or a snapshot waits for starts.
const startWait = 15 * time.Second

var errStartHangs = errors.New("a program inside keeps another one from starting; stop the sandbox, or end that program")

// end ends the container with all that runs in it. s.life is held, and the record refuses
// starts.
func (s *sandbox) end(ctx context.Context) error {
	s.forgetRoot()
	s.disconnect()
	if err := s.d.cfg.Engine.End(ctx, container.ID(s.id)); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.id, fault(err))
	}
	// Only now: a start that hangs ends with the container, and one that comes later finds none.
	s.awaitStarts()
	s.forgetRoot() // a start may have opened them again
	s.disconnect()
	s.mu.Lock()
	s.container = container.Info{}
	s.mu.Unlock()
	return nil
}

// Start implements driver.Controller.
func (s *sandbox) Start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // what has begun comes to its end
	s.Touch()
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	err, frozen := s.usable(), s.rec.Memory
	s.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrPaused) && frozen:
		return s.thaw(ctx)
	case !errors.Is(err, driver.ErrPaused) && !errors.Is(err, driver.ErrStopped):
		return err
	}
	return s.restart(ctx)
}

// restart makes a container with the files that there are. s.life is held.
func (s *sandbox) restart(ctx context.Context) error {
	// A stop that was cut short may have left a container.
	if err := s.end(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.adopt(), s.emptyWork()); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.change(true, func(r *record) error { r.ready(); return nil }); err != nil {
		return errors.Join(err, s.end(ctx))
	}
	s.d.clock.Set(s.deadline())
	s.told(driver.EventResumed, nil)
	s.d.log.Info("sandbox started", slog.String("id", string(s.id)))
	s.mu.Lock()
	start := s.rec.StartCommand
	s.mu.Unlock()
	return s.startUp(ctx, start, "", false) // who starts it does not wait until that is ready
}

// emptyWork gives the next container a new directory for the kernel: it refuses that of an
// overlay that did not end well.
func (s *sandbox) emptyWork() error {
	dir := filepath.Join(s.dir(), workName)
	if err := s.d.discard(dir); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.id, err)
	}
	return errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755))
}

// Stop implements driver.Controller.
func (s *sandbox) Stop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.life.Lock()
	defer s.life.Unlock()
	// First the state: what is started after this is refused.
	was := s.isReady()
	if err := s.change(true, func(r *record) error { r.stopped(""); return nil }); err != nil {
		return err
	}
	if err := s.end(ctx); err != nil {
		return err
	}
	if err := sandboxrecord.End(ctx, s.d.cfg.Manager, s.id, false); err != nil {
		return err
	}
	s.mu.Lock()
	disposable := s.rec.Disposable
	s.mu.Unlock()
	if was {
		s.told(driver.EventPaused, nil)
	}
	s.d.log.Info("sandbox stopped", slog.String("id", string(s.id)))
	if !disposable {
		return nil
	}
	for _, name := range []string{upName, workName, diskName} { // the next start makes another disk
		if err := s.d.discard(filepath.Join(s.dir(), name)); err != nil {
			return fmt.Errorf("files of sandbox %s: %w", s.id, err)
		}
	}
	// In this order: a directory that is missing is looked for in a layer.
	return errors.Join(s.makeDirs(), s.rewind())
}

// Destroy implements driver.Controller.
func (s *sandbox) Destroy(ctx context.Context) error {
	return s.destroy(ctx, driver.DestroyedByRequest)
}

// destroy is Destroy for a reason.
func (s *sandbox) destroy(ctx context.Context, reason string) error {
	ctx = context.WithoutCancel(ctx)
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil
	}
	if !s.rec.Destroying {
		next := s.rec
		next.Destroying = true
		if err := sandboxrecord.Write(s.dir(), &next, false); err != nil {
			s.mu.Unlock()
			return err
		}
		s.rec = next
	}
	s.mu.Unlock()
	failpoint.Hit(failpoint.SandboxDestroying)
	if err := s.end(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SandboxEnded)
	if err := sandboxrecord.End(ctx, s.d.cfg.Manager, s.id, true); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SandboxEmptied)
	if err := s.d.discard(s.dir()); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.id, err)
	}
	failpoint.Hit(failpoint.SandboxDiscarded)
	s.mu.Lock()
	s.gone = true
	s.tellOf(driver.EventDestroyed, func(e *driver.Event) { e.Reason = reason })
	s.mu.Unlock()
	s.releaseLayers()
	s.d.containers.Remove(s.id)
	s.returnIDs()
	s.d.log.Info("sandbox destroyed", slog.String("id", string(s.id)))
	return nil
}
