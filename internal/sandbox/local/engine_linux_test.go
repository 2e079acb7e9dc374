package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// paperEngine is an engine whose boxes are entries in a table. It is for what this
// package does with records, names and times; the rest is tested with the keeper's
// own. Pid 1 of each box is the test.
type paperEngine struct {
	mu    sync.Mutex
	boxes map[box.ID]*box.Info // guarded by mu
	specs map[box.ID]box.Spec  // guarded by mu
	fail  error                // of the next Make; guarded by mu
	lacks string               // why there are no boxes; guarded by mu
	way   string               // in which boxes are made
	asked int                  // calls of Can and List; guarded by mu
}

func (e *paperEngine) Can(context.Context) (box.Can, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.lacks != "" {
		return box.Can{Missing: []box.Missing{{Reason: e.lacks}}}, nil
	}
	return box.Can{Mode: box.ModeUser, Way: e.way, Layers: []string{box.LayerPID, box.LayerMount, box.LayerUser, box.LayerFreeze},
		Missing: []box.Missing{{Layer: box.LayerTasks, Reason: "paper"}, {Layer: box.LayerMemory, Reason: "paper"}, {Layer: box.LayerDisk, Reason: "paper"}}}, nil
}

func (e *paperEngine) NewID() box.ID { return box.NewID() }

func (e *paperEngine) Make(_ context.Context, spec box.Spec) (box.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fail; err != nil {
		e.fail = nil
		return box.Info{}, err
	}
	if err := spec.Validate(); err != nil {
		return box.Info{}, err
	}
	for _, name := range []string{upName, workName} {
		if left, err := os.ReadDir(filepath.Join(spec.Dir, name)); err != nil || name == workName && len(left) > 0 {
			return box.Info{}, &process.InvalidError{Field: "dir", Reason: "is not ready"}
		}
	}
	st, _ := procfs.ReadStat(os.Getpid())
	if e.boxes == nil {
		e.boxes, e.specs = map[box.ID]*box.Info{}, map[box.ID]box.Spec{}
	}
	e.boxes[spec.ID], e.specs[spec.ID] = &box.Info{ID: spec.ID, PID: os.Getpid(), Started: st.Start, Mode: box.ModeUser}, spec
	return *e.boxes[spec.ID], nil
}

// of does something with a box.
func (e *paperEngine) of(id box.ID, do func(*box.Info)) (box.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := e.boxes[id]
	if in == nil {
		return box.Info{}, box.ErrNotFound
	}
	do(in)
	return *in, nil
}

func (e *paperEngine) Network(_ context.Context, id box.ID) (box.Info, error) {
	return e.of(id, func(in *box.Info) { in.Network = true })
}

func (e *paperEngine) Freeze(_ context.Context, id box.ID, frozen bool) error {
	_, err := e.of(id, func(in *box.Info) { in.Frozen = frozen })
	return err
}

func (e *paperEngine) Limit(_ context.Context, id box.ID, _ box.Limits) error {
	_, err := e.of(id, func(*box.Info) {})
	return err
}

func (e *paperEngine) Usage(_ context.Context, id box.ID) (box.Usage, error) {
	_, err := e.of(id, func(*box.Info) {})
	return box.Usage{Memory: 1 << 20, Tasks: 1}, err
}

func (e *paperEngine) End(_ context.Context, id box.ID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes, id)
	return nil
}

func (e *paperEngine) List(context.Context) ([]box.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	var all []box.Info
	for _, in := range e.boxes {
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

// outside is a root that has no box.
type outside struct{ client.Root }

func openOn(t testing.TB, cfg Config) *Driver {
	t.Helper()
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
