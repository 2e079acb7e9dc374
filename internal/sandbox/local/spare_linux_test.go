package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// openSparing opens a driver that keeps a sandbox ready, and runs it until the end of the
// test.
func openSparing(t *testing.T, cfg Config) *Driver {
	t.Helper()
	cfg.Spare = true
	d := openReal(t, cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return d
}

// newest is the spare that the next creation in the shape that was asked for last takes; nil: there is none. p.mu is held.
func newest(p *spares) *spare {
	if len(p.pools) == 0 || len(p.pools[len(p.pools)-1].ready) == 0 {
		return nil
	}
	ready := p.pools[len(p.pools)-1].ready
	return ready[len(ready)-1]
}

// spareOf waits for the spare.
func spareOf(t *testing.T, d *Driver) *spare {
	t.Helper()
	var sp *spare
	proctest.Eventually(t, "there is a spare", func() bool {
		d.spares.mu.Lock()
		defer d.spares.mu.Unlock()
		sp = newest(&d.spares)
		return sp != nil
	})
	return sp
}

func TestDriverWithASpare(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) driver.Driver {
		d := openSparing(t, real(t))
		proctest.Must(t, proctest.Value(d.Create(t.Context(), driver.Spec{}))(t).Destroy(t.Context()))
		spareOf(t, d)
		return d
	})
}

// TestACreationTakesTheSpare, which nobody saw before, and which is then as any other: what
// was asked for is so inside.
func TestACreationTakesTheSpare(t *testing.T) {
	t.Parallel()
	d := openSparing(t, real(t))
	first, _ := create(t, d, driver.Spec{})
	sp := spareOf(t, d)
	if all := proctest.Value(d.List(t.Context()))(t); len(all) != 1 {
		t.Errorf("%d sandboxes are listed; want 1", len(all))
	}
	for _, key := range []string{string(sp.s.id), sp.s.rec.Name} {
		if _, err := d.Get(t.Context(), key); err == nil {
			t.Errorf("the spare is found by %q", key)
		}
	}
	proctest.WantExit(t, proctest.Start(t, first.Processes(), process.Spec{Shell: "echo x > /root/x"}), 0)
	for what, spec := range map[string]driver.Spec{
		"a name":          {Name: "mine"},
		"another size":    {Size: driver.Size{Tasks: 100}},
		"another network": {Network: driver.Network{Mode: driver.NetworkNone}},
		"rules":           {Network: driver.Network{Deny: []string{"*"}}},
		"a share":         {Shares: []driver.Share{{Source: "/usr/share", Target: "/share", ReadOnly: true}}},
		"another's files": {Snapshot: string(proctest.Value(d.Snapshot(t.Context(), first.id, driver.SnapshotSpec{}))(t).ID)},
		"a template":      {Template: "base"},
	} {
		if s, _ := create(t, d, spec); s.id == sp.s.id {
			t.Errorf("a creation with %s takes it", what)
		} else {
			proctest.Must(t, s.Destroy(t.Context()))
		}
	}
	d.spares.mu.Lock()
	d.spares.stays = 0
	d.spares.mu.Unlock()
	shape := driver.Spec{
		Deadline: time.Now().Add(time.Hour).UTC(), Metadata: map[string]string{"who": "me"}, Size: driver.Size{Tasks: 100},
		Run: driver.RunConfig{User: "daemon", Env: map[string]string{"A": "b"}},
	}
	other, _ := create(t, d, shape)
	proctest.Eventually(t, "the spare is as what was asked for last", func() bool { sp = spareOf(t, d); return sp.shape.size.Tasks == 100 })
	s, in := create(t, d, shape)
	if s.id != sp.s.id || s.id == other.id {
		t.Error("a creation does not take it")
	}
	if in.Metadata["who"] != "me" || !in.Deadline.Equal(shape.Deadline) || in.Name == "" || in.State != driver.Ready || in.Size.Tasks != 100 || time.Since(in.Created) > time.Minute {
		t.Errorf("it is %+v", in)
	}
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: `echo $A; id -un; cat /proc/sys/kernel/hostname`})
	proctest.WantOutput(t, p, process.Stdout, "b\ndaemon\n"+in.Name+"\n")
	if next := spareOf(t, d); next.s == s {
		t.Error("it is taken, and still the spare")
	}
}

// TestASpareOutlivesTheKeeperAndNotTheServer: a creation after the death of the keeper takes
// it, and the next server ends it.
func TestASpareOutlivesTheKeeperAndNotTheServer(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	m := cfg.Manager.(*client.Manager)
	d := openSparing(t, cfg)
	first, _ := create(t, d, driver.Spec{})
	sp := spareOf(t, d)
	proctest.Must(t, syscall.Kill(keeper(t, m), syscall.SIGKILL))
	s, _ := create(t, d, driver.Spec{})
	if s.id != sp.s.id {
		t.Error("it is not taken after the death of the keeper")
	}
	proctest.WantExit(t, proctest.Start(t, s.Processes(), process.Spec{Shell: "exit 3"}), 3)

	sp = spareOf(t, d)
	next := openOn(t, cfg) // as a server does after the death of this one
	all := proctest.Value(next.List(t.Context()))(t)
	if len(all) != 2 {
		t.Errorf("the next server has %d sandboxes; want 2", len(all))
	}
	for _, in := range proctest.Value(m.Containers().List(t.Context()))(t) {
		if driver.ID(in.ID) != first.id && driver.ID(in.ID) != s.id {
			t.Errorf("the container %s is left", in.ID)
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, string(sp.s.id))); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

// TestAWarmSpareHasStarted: a creation takes it with what runs in it, beside the spare of other shapes; its variables are the
// creation's. The next server leaves nothing of it.
func TestAWarmSpareHasStarted(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	cfg.WarmStart, cfg.WarmPort = "exec sleep 1000", 49999
	cfg.Door = (&answering{opened: map[driver.ID]int{}}).open
	cfg.Warm = func(ctx context.Context, id driver.ID, in driver.Access) error {
		_, err := in.Processes().Start(ctx, process.Spec{Shell: `echo "$OF $USER"; exec sleep 1000`, Labels: map[string]string{"warm": string(id)}})
		return err
	}
	d := openSparing(t, cfg)
	d.warm.mu.Lock()
	d.warm.patience = sparePatience
	d.warm.mu.Unlock()
	builtFrom := driver.BuildSpec{Name: "warm", Start: cfg.WarmStart, Steps: []driver.Step{
		{Kind: "ENV", Args: []string{"OF", "template"}}, {Kind: "USER", Args: []string{"daemon"}}}}
	if b, log := built(t, d, builtFrom); b.Status != driver.BuildReady {
		t.Fatal(b, log)
	}
	warmOf := func() (sp *spare) {
		proctest.Eventually(t, "there is a warm spare", func() bool {
			d.warm.mu.Lock()
			defer d.warm.mu.Unlock()
			sp = newest(&d.warm)
			return sp != nil
		})
		return sp
	}
	create(t, d, driver.Spec{Template: "warm"})
	sp := warmOf()
	create(t, d, driver.Spec{})
	plain := spareOf(t, d)
	s, _ := create(t, d, driver.Spec{Template: "warm", Env: map[string]string{"OF": "creation"}})
	if s.id != sp.s.id || plain.s.id == sp.s.id {
		t.Error("a creation does not take the warm spare")
	}
	all := proctest.Value(s.Processes().List(t.Context(), process.Filter{}))(t)
	if len(all) != 1 || all[0].Spec.Labels["warm"] != string(s.id) || all[0].Exit != nil {
		t.Fatalf("in it there is %+v", all)
	}
	p := proctest.Value(s.Processes().Get(t.Context(), process.Selector{ID: all[0].Spec.ID}))(t)
	if _, err := p.Wait(t.Context(), process.Until{Match: "template daemon"}); err != nil {
		t.Error(err)
	}
	proctest.WantOutput(t, proctest.Start(t, s.Processes(), process.Spec{Shell: "echo $OF"}), process.Stdout, "creation\n")
	line := "bash -c 'exec 3<>/dev/tcp/127.0.0.1/49999 && cat <&3'"
	if got := inSandbox(t, s, line); got != string(s.id)+"\n" {
		t.Errorf("at the port of the start command it hears %q", got)
	}

	sp = warmOf()
	next := openOn(t, cfg) // as a server does after the death of this one
	proctest.Value(next.List(t.Context()))(t)
	next.sweep(t.Context(), time.Now())
	left := proctest.Value(cfg.Manager.List(t.Context(), process.Filter{Labels: map[string]string{"warm": string(sp.s.id)}}))(t)
	if len(left) != 0 {
		t.Errorf("the next server has %+v of a spare", left)
	}
}

// TestAsManySparesAreKeptAsWereAskedForAtOnce, for a while; then half of them, and nothing of the others is left.
func TestAsManySparesAreKeptAsWereAskedForAtOnce(t *testing.T) {
	t.Parallel()
	d := openSparing(t, real(t))
	kept := func() int { // in the shape that was asked for last
		d.spares.mu.Lock()
		defer d.spares.mu.Unlock()
		return len(d.spares.pools[len(d.spares.pools)-1].ready)
	}
	create(t, d, driver.Spec{})
	spareOf(t, d)
	rec := record{Network: driver.NetworkOwn}
	for range 3 {
		defer d.asking(&rec)() // as three creations that do not end
	}
	create(t, d, driver.Spec{})
	proctest.Eventually(t, "four are kept", func() bool { return kept() == 4 })
	for i := range 6 {
		sp := spareOf(t, d)
		s, _ := create(t, d, driver.Spec{})
		if i == 0 && s.id != sp.s.id { // later another may have been made meanwhile
			t.Errorf("a creation takes %s, and not the newest, %s", s.id, sp.s.id)
		}
		proctest.WantExit(t, proctest.Start(t, s.Processes(), process.Spec{Shell: "exit 3"}), 3)
	}
	proctest.Eventually(t, "four are kept again", func() bool { return kept() == 4 })
	d.spares.mu.Lock()
	d.spares.pools[0].peak = time.Now().Add(-spareEases)
	d.spares.mu.Unlock()
	d.spares.wake()
	proctest.Eventually(t, "two are kept, and there is nothing of others", func() bool {
		return kept() == 2 && len(d.containers.All()) == 2+len(proctest.Value(d.List(t.Context()))(t))
	})
	d.spares.mu.Lock()
	d.spares.most = 5
	d.spares.mu.Unlock()
	other, _ := create(t, d, driver.Spec{Size: driver.Size{Tasks: 100}})
	for range 3 {
		defer d.asking(&other.rec)()
	}
	create(t, d, driver.Spec{Size: driver.Size{Tasks: 100}})
	proctest.Eventually(t, "of another shape there are as many, and of the first what there is room for", func() bool {
		four := kept() == 4
		d.spares.mu.Lock()
		defer d.spares.mu.Unlock()
		return four && len(d.spares.pools[0].ready) == 1
	})
}

// TestSparesAreKeptInEachShapeThatIsAskedFor, so that creations in turns all find one; there is room for another
// shape when the oldest is not new.
func TestSparesAreKeptInEachShapeThatIsAskedFor(t *testing.T) {
	t.Parallel()
	d := openSparing(t, real(t))
	in := func(n int64) driver.Spec { return driver.Spec{Size: driver.Size{Tasks: 100 + n}} }
	shapes := func() (all []int64) {
		d.spares.mu.Lock()
		defer d.spares.mu.Unlock()
		for _, q := range d.spares.pools {
			all = append(all, q.shape.size.Tasks-100)
		}
		return all
	}
	for round := range 2 {
		for n := range int64(spareShapes) {
			was := map[driver.ID]bool{}
			for _, s := range d.containers.All() {
				was[s.id] = true
			}
			s, _ := create(t, d, in(n))
			if round > 0 && !was[s.id] {
				t.Errorf("a creation in shape %d finds none", n)
			}
			proctest.Eventually(t, "there is one for the next", func() bool { sp := spareOf(t, d); return sp.shape.size.Tasks == 100+n })
		}
	}
	create(t, d, in(spareShapes))
	if got := shapes(); !slices.Equal(got, []int64{0, 1, 2, 3}) {
		t.Errorf("with new spares in all shapes that there is room for, there are %v", got)
	}
	d.spares.mu.Lock()
	d.spares.stays = 0
	d.spares.mu.Unlock()
	create(t, d, in(spareShapes))
	if got := shapes(); !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("then there are %v", got)
	}
	proctest.Eventually(t, "there is one in each, and nothing of others", func() bool {
		return len(d.containers.All()) == spareShapes+len(proctest.Value(d.List(t.Context()))(t))
	})
}

// TestADeadSpareIsNotTaken.
func TestADeadSpareIsNotTaken(t *testing.T) {
	t.Parallel()
	d := openSparing(t, real(t))
	create(t, d, driver.Spec{})
	sp := spareOf(t, d)
	proctest.Must(t, syscall.Kill(sp.s.container.PID, syscall.SIGKILL))
	proctest.Eventually(t, "it has ended", func() bool { return alive(sp.s.container) != nil })
	s, _ := create(t, d, driver.Spec{})
	if s.id == sp.s.id {
		t.Error("it is taken")
	}
	proctest.WantExit(t, proctest.Start(t, s.Processes(), process.Spec{Shell: "exit 3"}), 3)
	proctest.Eventually(t, "nothing of it is left", func() bool {
		_, err := os.Stat(sp.s.dir())
		return os.IsNotExist(err)
	})
}

// TestNoSpareHoldsWhatIsDeleted.
func TestNoSpareHoldsWhatIsDeleted(t *testing.T) {
	t.Parallel()
	d := openSparing(t, real(t))
	s, _ := create(t, d, driver.Spec{})
	n := proctest.Value(d.Snapshot(t.Context(), s.id, driver.SnapshotSpec{Name: "kept"}))(t)
	from, _ := create(t, d, driver.Spec{Snapshot: string(n.ID)})
	proctest.Must(t, s.Destroy(t.Context()))
	proctest.Must(t, from.Destroy(t.Context()))
	proctest.Must(t, d.DeleteSnapshot(t.Context(), string(n.ID)))
	proctest.Eventually(t, "there is no spare", func() bool { return len(d.containers.All()) == 0 })
}

// TestSparesAreNoUseOfAnImage: one that only they have is pruned, and none of them is left.
func TestSparesAreNoUseOfAnImage(t *testing.T) {
	t.Parallel()
	d := openSparing(t, real(t))
	imported(t, d, shellImage(t).Saved(t, "web:1"), "")
	s, _ := create(t, d, driver.Spec{Image: "web:1"})
	spareOf(t, d)
	proctest.Must(t, s.Destroy(t.Context()))
	if gone := proctest.Value(d.PruneImages(t.Context(), true))(t); len(gone) != 1 {
		t.Errorf("%d images are pruned; want 1", len(gone))
	}
	if left := d.containers.All(); len(left) != 0 {
		t.Errorf("%d containers are left", len(left))
	}
}

// TestACreationWaitsForTheSpareThatIsBeingMade, and only one does.
func TestACreationWaitsForTheSpareThatIsBeingMade(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	d.cfg.Spare, d.spares.latest = true, time.Hour
	first, _ := create(t, d, driver.Spec{})
	c := &coming{made: make(chan struct{})}
	q := d.spares.pools[0]
	q.coming = c
	taken := make(chan *sandbox)
	go func() { taken <- d.takeSpare(t.Context(), first.rec) }()
	proctest.Eventually(t, "it waits", func() bool {
		d.spares.mu.Lock()
		defer d.spares.mu.Unlock()
		return c.wanted
	})
	if s := d.takeSpare(t.Context(), first.rec); s != nil {
		t.Errorf("a second creation gets %s", s.id)
	}
	sp := &spare{shape: q.shape, since: time.Now()}
	proctest.Must(t, d.makeSpareOf(t.Context(), sp, ""))
	d.spares.mu.Lock()
	q.ready, q.coming = append(q.ready, sp), nil
	d.spares.mu.Unlock()
	close(c.made)
	if s := <-taken; s != sp.s {
		t.Error("it does not get the spare that it waited for")
	} else {
		proctest.Must(t, s.Destroy(t.Context()))
	}
	q.coming = &coming{made: make(chan struct{})}
	close(q.coming.made) // as after a fault
	if s := d.takeSpare(t.Context(), first.rec); s != nil {
		t.Errorf("where none could be made, a creation gets %s", s.id)
	}
}
