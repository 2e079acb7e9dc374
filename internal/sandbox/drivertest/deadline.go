package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// work lets the driver do its work in the background while the test runs.
func work(t *testing.T, d driver.Driver) {
	t.Helper()
	r, ok := d.(driver.Runner)
	if !ok {
		t.Fatal("a driver keeps deadlines by driver.Runner, which this one is not")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func state(t *testing.T, s driver.Sandbox) driver.State {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State
}

func change(t *testing.T, s driver.Sandbox, c driver.Change) driver.Info {
	t.Helper()
	info, err := s.Update(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func notes(t *testing.T, d driver.Driver) {
	s, info := create(t, d, driver.Spec{Notes: map[string]string{"a": "1", "b": "2"}, Wake: true})
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, info.Notes); diff != "" || !info.Wake || len(info.Metadata) != 0 {
		t.Errorf("%+v\n%s", info, diff)
	}
	info = change(t, s, driver.Change{Notes: map[string]string{"a": "", "c": "3"}})
	if diff := cmp.Diff(map[string]string{"b": "2", "c": "3"}, info.Notes); diff != "" {
		t.Error(diff)
	}
}

func deadlineDestroys(t *testing.T, d driver.Driver) {
	work(t, d)
	s, info := create(t, d, driver.Spec{Deadline: time.Now().Add(time.Hour)})
	if left := time.Until(info.Deadline); left <= 0 || left > time.Hour || info.AtDeadline != driver.ActionDestroy {
		t.Errorf("it is %+v", info)
	}
	other, _ := create(t, d, driver.Spec{})
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: "sleep 600"})
	soon := time.Now().Add(50 * time.Millisecond)
	if _, err := s.Update(t.Context(), driver.Change{Deadline: &soon}); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the sandbox is destroyed with its process", func() bool {
		_, err := s.Info(t.Context())
		_, gone := p.Info(t.Context())
		return errors.Is(err, driver.ErrNotFound) && errors.Is(gone, process.ErrNotFound)
	})
	if state(t, other) != driver.Ready {
		t.Error("a sandbox without a deadline ended")
	}
	// A stop ends neither: one that would be paused is stopped already, the other one is destroyed.
	paused, _ := create(t, d, driver.Spec{Deadline: time.Now().Add(time.Hour), AtDeadline: driver.ActionPause})
	stopped, _ := create(t, d, driver.Spec{Deadline: time.Now().Add(time.Hour)})
	for _, s := range []driver.Sandbox{paused, stopped} {
		proctest.Must(t, s.Stop(t.Context()))
		if info := change(t, s, driver.Change{}); info.Deadline.IsZero() {
			t.Error("a stop has taken the deadline away")
		}
		soon = time.Now()
		change(t, s, driver.Change{Deadline: &soon})
	}
	proctest.Eventually(t, "the stopped sandbox is destroyed", func() bool {
		_, err := stopped.Info(t.Context())
		return errors.Is(err, driver.ErrNotFound)
	})
	if state(t, paused) != driver.Stopped {
		t.Error("a stopped sandbox that would be paused is gone")
	}
}

func deadlinePauses(t *testing.T, d driver.Driver) {
	work(t, d)
	s, _ := create(t, d, driver.Spec{Deadline: time.Now().Add(50 * time.Millisecond), AtDeadline: driver.ActionPause})
	want := driver.Stopped
	if _, ok := d.(driver.Pauser); ok {
		want = driver.Paused
	}
	proctest.Eventually(t, "the sandbox is "+want.String(), func() bool { return state(t, s) == want })
	// It may not end at once again.
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil || info.State != driver.Ready || !info.Deadline.IsZero() || info.AtDeadline != driver.ActionPause {
		t.Errorf("after a start it is %+v, %v", info, err)
	}
	if out, status := sh(t, s, "echo on"); out != "on\n" || status != 0 {
		t.Errorf("it says %q, %d", out, status)
	}
	action, soon := driver.ActionDestroy, time.Now()
	if _, err := s.Update(t.Context(), driver.Change{Deadline: &soon, AtDeadline: &action}); err != nil &&
		!errors.Is(err, driver.ErrNotFound) {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the sandbox is destroyed", func() bool {
		_, err := s.Info(t.Context())
		return errors.Is(err, driver.ErrNotFound)
	})
}

func deadlineKeepsFiles(t *testing.T, d driver.Driver) {
	work(t, d)
	s, _ := create(t, d, driver.Spec{Deadline: time.Now().Add(time.Hour), AtDeadline: driver.ActionPause, FilesAlone: true})
	if out, status := sh(t, s, "echo kept > kept; echo made"); out != "made\n" || status != 0 {
		t.Fatalf("it says %q, %d", out, status)
	}
	p, err := s.Processes().Start(t.Context(), process.Spec{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	soon := time.Now()
	if _, err := s.Update(t.Context(), driver.Change{Deadline: &soon}); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the sandbox is paused or stopped", func() bool {
		st := state(t, s)
		return st == driver.Paused ||
			st == driver.Stopped
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := proctest.Wait(t, p, process.Until{}); res.Exit == nil {
		t.Errorf("a process is still there: %+v", res)
	}
	if info, err := s.Info(t.Context()); err != nil || info.State != driver.Ready || !info.FilesAlone {
		t.Errorf("after a start it is %+v, %v", info, err)
	}
	if out, status := sh(t, s, "cat kept"); out != "kept\n" || status != 0 {
		t.Errorf("it says %q, %d", out, status)
	}
}

func extended(t *testing.T, d driver.Driver) {
	in := func(d time.Duration) *time.Time {
		at := time.Now().Add(d).UTC().Round(time.Millisecond)
		return &at
	}
	hour, less, more := in(time.Hour), in(time.Minute), in(2*time.Hour)
	s, info := create(t, d, driver.Spec{})
	if info = change(t, s, driver.Change{Extend: hour}); !info.Deadline.IsZero() {
		t.Errorf("extending none makes %v", info.Deadline)
	}
	for i, step := range []struct {
		change driver.Change
		want   time.Time
	}{
		{driver.Change{Deadline: hour}, *hour}, {driver.Change{Extend: less}, *hour}, {driver.Change{Extend: more}, *more},
		{driver.Change{Deadline: less}, *less}, {driver.Change{Deadline: new(time.Time)}, time.Time{}},
	} {
		if info = change(t, s, step.change); !info.Deadline.Equal(step.want) {
			t.Errorf("after change %d it is %v, want %v", i, info.Deadline, step.want)
		}
	}
	var wrong *driver.InvalidError
	if _, err := s.Update(t.Context(), driver.Change{Deadline: hour, Extend: more}); !errors.As(err, &wrong) || wrong.Field != "extend" {
		t.Errorf("both at once: %v", err)
	}
}

func refused(t *testing.T, d driver.Driver) {
	_, snapshots := d.(driver.Snapshotter)
	_, templates := d.(driver.Templater)
	isolates := len(d.Capabilities().Layers) > 0
	for field, tc := range map[string]struct {
		can  bool
		spec driver.Spec
	}{
		"snapshot":      {snapshots, driver.Spec{Snapshot: "s"}},
		"template":      {templates, driver.Spec{Template: "t"}},
		"isolation":     {isolates, driver.Spec{Isolation: driver.IsolationFull}},
		"volumes":       {isolates, driver.Spec{Volumes: []driver.VolumeMount{{Name: "v", Target: "/v"}}}},
		"shares":        {isolates, driver.Spec{Shares: []driver.Share{{Source: "/usr"}}}},
		"network.mode":  {isolates, driver.Spec{Network: driver.Network{Mode: driver.NetworkNone}}},
		"network.allow": {isolates, driver.Spec{Network: driver.Network{Allow: []string{"example.com"}}}},
	} {
		if tc.can {
			continue // what it does is looked at elsewhere
		}
		var wrong *driver.UnsupportedError
		if _, err := d.Create(t.Context(), tc.spec); !errors.Is(err, driver.ErrUnsupported) || !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left behind: %+v, %v", all, err)
	}
}
