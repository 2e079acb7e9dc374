package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// paperEngine is an engine whose containers are entries in a table. It is for what this
// package does with records, names and times; the rest is tested with the keeper's
// own. Pid 1 of each container is the test.
type paperEngine struct {
	mu         sync.Mutex
	containers map[container.ID]*container.Info // guarded by mu
	specs      map[container.ID]container.Spec  // guarded by mu
	fail       error                            // of the next Make; guarded by mu
	lacks      string                           // why there are no containers; guarded by mu
	way        string                           // in which containers are made
	asked      int                              // calls of Can and List; guarded by mu
}

func (e *paperEngine) Can(context.Context) (container.Can, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.lacks != "" {
		return container.Can{Missing: []container.Missing{{Reason: e.lacks}}}, nil
	}
	return container.Can{Mode: container.ModeUser, Way: e.way, Layers: []string{container.LayerPID, container.LayerMount, container.LayerUser, container.LayerFreeze},
		Missing: []container.Missing{{Layer: container.LayerTasks, Reason: "paper"}, {Layer: container.LayerMemory, Reason: "paper"}, {Layer: container.LayerDisk, Reason: "paper"}}}, nil
}

func (e *paperEngine) NewID() container.ID { return container.NewID() }

func (e *paperEngine) Make(_ context.Context, spec container.Spec) (container.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fail; err != nil {
		e.fail = nil
		return container.Info{}, err
	}
	if err := spec.Validate(); err != nil {
		return container.Info{}, err
	}
	for _, name := range []string{upName, workName} {
		if left, err := os.ReadDir(filepath.Join(spec.Dir, name)); err != nil || name == workName && len(left) > 0 {
			return container.Info{}, &process.InvalidError{Field: "dir", Reason: "is not ready"}
		}
	}
	st, _ := procfs.ReadStat(os.Getpid())
	if e.containers == nil {
		e.containers, e.specs = map[container.ID]*container.Info{}, map[container.ID]container.Spec{}
	}
	e.containers[spec.ID], e.specs[spec.ID] = &container.Info{ID: spec.ID, PID: os.Getpid(), Started: st.Start, Mode: container.ModeUser}, spec
	return *e.containers[spec.ID], nil
}

// of does something with a container.
func (e *paperEngine) of(id container.ID, do func(*container.Info)) (container.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := e.containers[id]
	if in == nil {
		return container.Info{}, container.ErrNotFound
	}
	do(in)
	return *in, nil
}

func (e *paperEngine) Network(_ context.Context, id container.ID) (container.Info, error) {
	return e.of(id, func(in *container.Info) { in.Network = true })
}

func (e *paperEngine) Freeze(_ context.Context, id container.ID, frozen bool) error {
	_, err := e.of(id, func(in *container.Info) { in.Frozen = frozen })
	return err
}

func (e *paperEngine) Limit(_ context.Context, id container.ID, _ container.Limits) error {
	_, err := e.of(id, func(*container.Info) {})
	return err
}

func (e *paperEngine) Usage(_ context.Context, id container.ID) (container.Usage, error) {
	_, err := e.of(id, func(*container.Info) {})
	return container.Usage{Memory: 1 << 20, Tasks: 1}, err
}

func (e *paperEngine) End(_ context.Context, id container.ID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.containers, id)
	return nil
}

func (e *paperEngine) List(context.Context) ([]container.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	var all []container.Info
	for _, in := range e.containers {
		all = append(all, *in)
	}
	return all, nil
}

func (e *paperEngine) ids() (ids []driver.ID) {
	all, _ := e.List(context.Background())
	for _, in := range all {
		ids = append(ids, driver.ID(in.ID))
	}
	slices.Sort(ids)
	return ids
}

// onPaper returns what a driver over an engine of paper is opened with.
func onPaper(t *testing.T) (Config, *paperEngine) {
	t.Helper()
	m := testkeeper.New(t).(*client.Manager)
	e := &paperEngine{}
	nowhere, err := network.ParseDeny([]string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Dir: filepath.Join(t.TempDir(), "sandboxes"), Manager: m, Engine: e,
		Network: network.NewHost(network.Config{Deny: nowhere}), // what is made of paper has the machine's network
		Inside:  func(r Root) process.Manager { return m.In(outside{r}) },
	}, e
}

// outside is a root that has no container.
type outside struct{ client.Root }

func openOn(t testing.TB, cfg Config) *Driver {
	t.Helper()
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
