package local

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// hanging is an engine in which starts hang until their container ends.
type hanging struct {
	*paperEngine
	mu    sync.Mutex
	leave map[container.ID]func()        // guarded by mu
	stuck map[container.ID]chan struct{} // the end waits for it; guarded by mu
}

func (h *hanging) End(ctx context.Context, id container.ID) error {
	h.mu.Lock()
	leave, stuck := h.leave[id], h.stuck[id]
	delete(h.leave, id)
	h.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	if leave != nil {
		leave()
	}
	return h.paperEngine.End(ctx, id)
}

// hang begins a start that ends with the container.
func (h *hanging) hang(t *testing.T, s driver.Sandbox, id driver.ID) {
	t.Helper()
	leave, err := s.(*sandbox).Enter(t.Context(), &process.Spec{})
	proctest.Must(t, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leave[container.ID(id)] = leave
}

// inTime fails if it takes a minute.
func inTime(t *testing.T, what string, do func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("it hangs: %s", what)
		return nil
	}
}

func TestAStartThatHangsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	cfg, paper := onPaper(t)
	h := &hanging{paperEngine: paper, leave: map[container.ID]func(){}, stuck: map[container.ID]chan struct{}{}}
	cfg.Engine = h
	d := openOn(t, cfg)
	d.startWait = time.Millisecond
	s, in := create(t, d, driver.Spec{})
	h.hang(t, s, in.ID)
	if err := inTime(t, "a pause", func() error { return d.Pause(t.Context(), in.ID, driver.PauseSpec{Memory: true}) }); !errors.Is(err, errStartHangs) {
		t.Errorf("a pause: %v", err)
	}
	if in, err := s.Info(t.Context()); err != nil || in.State != driver.Ready {
		t.Errorf("after it: %+v, %v", in, err)
	}
	proctest.Must(t, inTime(t, "its end", func() error { return s.Destroy(t.Context()) }))

	// The end of one takes for ever; another one ends at its time.
	at := time.Now().Add(time.Hour)
	_, a := create(t, d, driver.Spec{Deadline: at})
	_, b := create(t, d, driver.Spec{Deadline: at})
	paused, c := create(t, d, driver.Spec{Deadline: at, AtDeadline: driver.ActionPause})
	h.hang(t, paused, c.ID)
	stuck := make(chan struct{})
	h.mu.Lock()
	h.stuck[container.ID(a.ID)] = stuck
	h.mu.Unlock()
	proctest.Must(t, inTime(t, "a sweep", func() error { d.sweep(t.Context(), at.Add(time.Second)); return nil }))
	if _, err := d.Get(t.Context(), string(b.ID)); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("the other one: %v", err)
	}
	if in, err := paused.Info(t.Context()); err != nil || in.State != driver.Paused {
		t.Errorf("the one to be paused: %+v, %v", in, err)
	}
	close(stuck)
	d.expiring.Wait()
	if _, err := d.Get(t.Context(), string(a.ID)); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("the one that took long: %v", err)
	}
}
