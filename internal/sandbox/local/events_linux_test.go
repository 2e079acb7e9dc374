package local

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// told are the events that a driver has told.
type told struct {
	mu  sync.Mutex
	all []driver.Event
}

func (l *told) tell(e driver.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

// of are those of a sandbox.
func (l *told) of(id driver.ID) (kinds string, last driver.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, e := range l.all {
		if e.Info.ID == id {
			all, last = append(all, string(e.Kind)), e
		}
	}
	return strings.Join(all, " "), last
}

func (l *told) want(t *testing.T, id driver.ID, want string) driver.Event {
	t.Helper()
	got, last := l.of(id)
	if got != want {
		t.Errorf("it is told %q, want %q", got, want)
	}
	return last
}

func TestWhatBecomesOfSandboxesIsTold(t *testing.T) {
	t.Parallel()
	cfg, l := real(t), new(told)
	cfg.Tell = l.tell
	d := openSparing(t, cfg)
	s, err := d.Create(t.Context(), driver.Spec{Metadata: map[string]string{"k": "v"}, Deadline: time.Now().Add(time.Hour)})
	proctest.Must(t, err)
	id := infoOf(t, s).ID
	if e := l.want(t, id, "created"); e.Info.Metadata["k"] != "v" || e.ID == "" || time.Since(e.Time) > time.Minute {
		t.Errorf("the event is %+v", e)
	}
	later, sooner := time.Now().Add(2*time.Hour), time.Now().Add(time.Minute)
	for _, c := range []driver.Change{{Metadata: map[string]string{"k": "w"}}, {Extend: &sooner}} { // nothing that is told
		_, err := s.Update(t.Context(), c)
		proctest.Must(t, err)
	}
	l.want(t, id, "created")
	_, err = s.Update(t.Context(), driver.Change{Extend: &later})
	proctest.Must(t, err)
	if e := l.want(t, id, "created updated"); !e.Deadline || e.Network || !e.Info.Deadline.Equal(later) {
		t.Errorf("the event is %+v", e)
	}
	proctest.Must(t, d.Pause(t.Context(), id, driver.PauseSpec{Memory: !testkeeper.IsRootless()}))
	_, err = s.Update(t.Context(), driver.Change{Deadline: &sooner}) // the resumption is told
	proctest.Must(t, err)
	proctest.Must(t, d.Resume(t.Context(), id))
	proctest.Must(t, d.Resume(t.Context(), id))
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Must(t, s.Start(t.Context()))
	proctest.Must(t, s.Destroy(t.Context()))
	proctest.Must(t, s.Destroy(t.Context()))
	all := "created updated paused resumed paused resumed destroyed"
	if e := l.want(t, id, all); e.Reason != driver.DestroyedByRequest {
		t.Errorf("the reason is %q", e.Reason)
	}

	// One whose time is up.
	spareOf(t, d)
	s, err = d.Create(t.Context(), driver.Spec{Deadline: time.Now().Add(time.Hour), AtDeadline: driver.ActionPause, FilesAlone: true})
	proctest.Must(t, err)
	id = infoOf(t, s).ID
	now := time.Now().Add(-time.Second)
	_, err = s.Update(t.Context(), driver.Change{Deadline: &now})
	proctest.Must(t, err)
	eventually(t, l, id, "created updated paused")
	s, err = d.Create(t.Context(), driver.Spec{Deadline: time.Now().Add(time.Hour)})
	proctest.Must(t, err)
	id = infoOf(t, s).ID
	_, err = s.Update(t.Context(), driver.Change{Deadline: &now})
	proctest.Must(t, err)
	eventually(t, l, id, "created updated destroyed")
	if _, e := l.of(id); e.Reason != driver.DestroyedAtTime {
		t.Errorf("the reason is %q", e.Reason)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	created := 0
	for _, e := range l.all {
		if e.Kind == driver.EventCreated {
			created++
		}
	}
	if created != 3 { // a spare is told when it is somebody's
		t.Errorf("%d creations are told", created)
	}
}

// One whose time is over as it is changed is paused by a sweep that may come at any moment.
func TestAChangeIsToldBeforeWhatFollowsFromIt(t *testing.T) {
	t.Parallel()
	cfg, l := real(t), new(told)
	cfg.Tell = l.tell
	d := openReal(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var sweeper sync.WaitGroup
	for range 8 {
		sweeper.Go(func() {
			for ctx.Err() == nil {
				d.expire(ctx, time.Now())
			}
		})
	}
	defer sweeper.Wait()
	defer cancel()
	for range 64 {
		s, err := d.Create(t.Context(), driver.Spec{Deadline: time.Now().Add(time.Hour), AtDeadline: driver.ActionPause, FilesAlone: true})
		proctest.Must(t, err)
		id := infoOf(t, s).ID
		now := time.Now().Add(-time.Second)
		if _, err := s.Update(t.Context(), driver.Change{Deadline: &now}); err != nil {
			t.Fatal(err)
		}
		eventually(t, l, id, "created updated paused")
		proctest.Must(t, s.Destroy(t.Context()))
	}
}

func eventually(t *testing.T, l *told, id driver.ID, want string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Errorf("it is told %q, want %q", got, want)
		}
	}()
	proctest.Eventually(t, "it is told "+want, func() bool { got, _ = l.of(id); return got == want })
}
