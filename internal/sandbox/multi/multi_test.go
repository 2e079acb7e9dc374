package multi

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// named is a driver of sandboxes that say to be isolated.
type named struct {
	*host.Driver
	paused driver.ID
	making chan struct{} // a creation waits for it, if there is one
}

func (n *named) Create(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if spec.Isolation != driver.IsolationFull {
		return nil, driver.ErrUnsupported
	}
	spec.Isolation = driver.IsolationDefault
	if n.making != nil {
		n.making <- struct{}{}
		<-n.making
	}
	return n.Driver.Create(ctx, spec)
}

func (n *named) Pause(_ context.Context, id driver.ID, _ driver.PauseSpec) error {
	n.paused = id
	return nil
}
func (n *named) Resume(context.Context, driver.ID) error { return nil }

func open(t *testing.T) (*Driver, *named) {
	t.Helper()
	m := testkeeper.New(t)
	two := [2]*host.Driver{}
	for i := range two {
		d, err := host.Open(host.Config{Manager: m, Dir: filepath.Join(t.TempDir(), "boxes")})
		if err != nil {
			t.Fatal(err)
		}
		two[i] = d
	}
	full := &named{Driver: two[0]}
	return New(full, two[1]), full
}

func TestIsolationSaysWhichDriver(t *testing.T) {
	t.Parallel()
	d, full := open(t)
	var ids []driver.ID
	for i, spec := range []driver.Spec{{Name: "full", Isolation: driver.IsolationFull}, {Name: "none", Isolation: driver.IsolationNone}, {Name: "default"}} {
		s, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
		if _, err := full.Get(t.Context(), spec.Name); (err == nil) != (i == 0) {
			t.Errorf("the driver that isolates has %s: %v", spec.Name, err)
		}
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 3 || all[0].Name != "full" || all[2].Name != "default" {
		t.Errorf("%+v, %v", all, err)
	}
	if err := d.Pause(t.Context(), ids[0], driver.PauseSpec{}); err != nil || full.paused != ids[0] {
		t.Errorf("a pause: %v, of %q", err, full.paused)
	}
	if err := d.Pause(t.Context(), ids[1], driver.PauseSpec{}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a pause where there is none: %v", err)
	}
	if err := d.Pause(t.Context(), driver.NewID(), driver.PauseSpec{}); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("a pause of none: %v", err)
	}
	if _, err := d.Fork(t.Context(), ids[1], driver.ForkSpec{}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a fork where there is none: %v", err)
	}
	if _, err := d.Snapshots(t.Context()); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("snapshots where there are none: %v", err)
	}
	for what, err := range map[string]error{
		"build":     justErr(d.Build(t.Context(), driver.BuildSpec{Name: "a"})),
		"template":  justErr(d.Template(t.Context(), "a")),
		"templates": justErr(d.Templates(t.Context())),
		"delete":    d.DeleteTemplate(t.Context(), "a"),
		"tag":       justErr(d.Tag(t.Context(), "a", nil)),
		"untag":     d.Untag(t.Context(), "a", nil),
		"tags":      justErr(d.Tags(t.Context(), "a")),
	} {
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s where there are none: %v", what, err)
		}
	}
}

func justErr[T any](_ T, err error) error { return err }

func TestANameIsThatOfOneSandboxOfBoth(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	if _, err := d.Create(t.Context(), driver.Spec{Name: "a", Isolation: driver.IsolationFull}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), driver.Spec{Name: "a"}); !errors.Is(err, driver.ErrExists) {
		t.Errorf("a second a: %v", err)
	}
	b, err := d.Create(t.Context(), driver.Spec{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	name := "a"
	if _, err := b.Update(t.Context(), driver.Change{Name: &name}); !errors.Is(err, driver.ErrExists) {
		t.Errorf("a change to a: %v", err)
	}
	if b, err = d.Get(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Update(t.Context(), driver.Change{Name: &name}); !errors.Is(err, driver.ErrExists) {
		t.Errorf("a change to a of what was found: %v", err)
	}
}

func TestNobodyWaitsForACreation(t *testing.T) {
	t.Parallel()
	d, full := open(t)
	full.making = make(chan struct{})
	made := make(chan error)
	go func() {
		made <- justErr(d.Create(t.Context(), driver.Spec{Name: "slow", Isolation: driver.IsolationFull}))
	}()
	<-full.making
	others := make(chan error, 2)
	go func() {
		others <- justErr(d.Create(t.Context(), driver.Spec{Name: "slow"}))
		others <- justErr(d.Create(t.Context(), driver.Spec{Name: "quick"}))
	}()
	for _, want := range []error{driver.ErrExists, nil} {
		select {
		case err := <-others:
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		case <-time.After(time.Minute):
			t.Error("it waits for the creation")
		}
	}
	full.making <- struct{}{}
	if err := <-made; err != nil {
		t.Error(err)
	}
	full.making = nil
	if _, err := d.Create(t.Context(), driver.Spec{Name: "slow"}); !errors.Is(err, driver.ErrExists) {
		t.Errorf("a second one: %v", err)
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) driver.Driver {
		d, full := open(t)
		d.full = full.Driver // which isolates nothing, and says so
		return struct {      // without the abilities that it has not either
			driver.Driver
			driver.Runner
		}{d, d}
	})
}
