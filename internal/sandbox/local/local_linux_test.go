package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// real returns what a driver over the keeper's own containers is opened with.
func real(t testing.TB) Config {
	t.Helper()
	if !testkeeper.IsRootless() {
		proctest.Root(t)
	}
	m := testkeeper.New(t).(*client.Manager)
	return Config{
		Dir: filepath.Join(t.TempDir(), "sandboxes"), Manager: m, Engine: m.Containers(),
		Inside: func(r Root) process.Manager { return m.In(r) },
	}
}

func openReal(t testing.TB, cfg Config) *Driver {
	t.Helper()
	d := openOn(t, cfg)
	if err := d.Unable(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		left, err := cfg.Engine.List(ctx)
		for _, in := range left {
			err = errors.Join(err, cfg.Engine.End(ctx, in.ID))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) driver.Driver { return openReal(t, real(t)) })
}

// keeper is the pid of the keeper that answers.
func keeper(t *testing.T, m *client.Manager) int {
	t.Helper()
	for _, f := range m.Facts() {
		if text, ok := strings.CutPrefix(f, "keeper_answers=pid "); ok {
			pid, err := strconv.Atoi(text)
			proctest.Must(t, err)
			return pid
		}
	}
	t.Fatal("no keeper answers")
	return 0
}

// TestFileCallsMeetTheEndOfASandbox: whenever a sandbox ends, who is at its files is
// told that, and nothing of how it looks from outside.
func TestFileCallsMeetTheEndOfASandbox(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	known := func(err error) bool {
		return err == nil || errors.Is(err, driver.ErrStopped) || errors.Is(err, driver.ErrNotFound)
	}
	for i := range 20 {
		s, _ := create(t, d, driver.Spec{Isolation: driver.IsolationFull})
		held, err := s.Files("", "/")
		proctest.Must(t, err)
		stop, done := make(chan struct{}), make(chan error)
		go func() {
			for {
				f, err := s.Files("", "/")
				if err == nil {
					_, err = f.List(t.Context(), "/", 1)
				}
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if !known(err) {
					done <- err
					return
				}
			}
		}()
		end := s.Destroy
		if i%2 == 0 {
			end = s.Stop
		}
		proctest.Must(t, end(t.Context()))
		close(stop)
		if err := <-done; err != nil {
			t.Errorf("while it ended: %v", err)
		}
		want := driver.ErrNotFound
		if i%2 == 0 {
			want = driver.ErrStopped
		}
		if _, err := held.Stat("/"); !errors.Is(err, want) {
			t.Errorf("with what was opened before: %v; want %v", err, want)
		}
		proctest.Must(t, s.Destroy(t.Context()))
	}
}

// TestASandboxOutlivesKeeperAndServer: also while it is paused, and what runs in it
// loses nothing.
func TestASandboxOutlivesKeeperAndServer(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	m := cfg.Manager.(*client.Manager)
	d := openReal(t, cfg)
	s, in := create(t, d, driver.Spec{Name: "kept", Deadline: time.Now().Add(time.Hour).UTC()})
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: "echo $$; trap 'exit 7' TERM; while read line; do echo got $line; done; sleep 600 & wait", Stdin: process.StdinPipe})
	pid := proctest.Info(t, p).PID
	rests, _ := create(t, d, driver.Spec{Name: "rests"})
	still := proctest.Start(t, rests.Processes(), process.Spec{Shell: "sleep 600"})
	freezes := !drivertest.Lacks(t, d, container.LayerFreeze)
	if freezes {
		proctest.Must(t, d.Pause(t.Context(), rests.id, driver.PauseSpec{Memory: true}))
	}
	for round := range 3 {
		proctest.Must(t, syscall.Kill(keeper(t, m), syscall.SIGKILL))
		if round > 0 { // a server's death is a driver that is opened again
			d = openOn(t, cfg)
		}
		found, err := d.Get(t.Context(), "kept")
		if err != nil {
			t.Fatal(err)
		}
		if got := info(t, found); got.State != driver.Ready || !got.Deadline.Equal(in.Deadline) {
			t.Fatalf("after the death of the keeper it is %+v", got)
		}
		if q, err := found.Processes().Get(t.Context(), process.Selector{PID: pid}); err != nil || q.ID() != p.ID() {
			t.Fatalf("its process is not found by its pid: %v", err)
		}
		proctest.Write(t, p, strconv.Itoa(round)+"\n")
		fresh := proctest.Start(t, found.Processes(), process.Spec{Shell: "cat /proc/sys/kernel/hostname; kill -0 " + strconv.Itoa(pid)})
		proctest.WantExit(t, fresh, 0)
		proctest.WantOutput(t, fresh, process.Stdout, "kept\n")
	}
	proctest.Eventually(t, "all lines have come", func() bool {
		return soFar(t, p) == strconv.Itoa(pid)+"\ngot 0\ngot 1\ngot 2\n"
	})
	proctest.Must(t, p.Signal(t.Context(), int(syscall.SIGKILL), process.ScopeTree))
	if res := proctest.Wait(t, p, process.Until{}); res.Exit == nil || res.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("it ended with %+v", res.Exit)
	}
	if freezes {
		if again, err := d.Get(t.Context(), "rests"); err != nil || info(t, again).State != driver.Paused {
			t.Errorf("the other is not paused any more: %v", err)
		}
		proctest.Must(t, d.Resume(t.Context(), rests.id))
	}
	if got := proctest.Info(t, still); got.Exit != nil {
		t.Errorf("what stood still has ended: %+v", got.Exit)
	}
	for _, name := range []string{"kept", "rests"} {
		found, err := d.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		proctest.Must(t, found.Destroy(t.Context()))
	}
	if left, err := m.Containers().List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("containers are left: %+v, %v", left, err)
	}
}

// soFar is what a process has written until now.
func soFar(t *testing.T, p process.Process) (out string) {
	t.Helper()
	for ev, err := range process.Events(t.Context(), p, process.ReadOptions{NoFollow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		out += string(ev.Data)
	}
	return out
}

// TestDeathsBetweenTheStepsLeaveNoHalf: the keeper dies while sandboxes are made and
// destroyed, and whatever each call says, sandboxes and containers are the same in the end.
func TestDeathsBetweenTheStepsLeaveNoHalf(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	m := cfg.Manager.(*client.Manager)
	d := openReal(t, cfg)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
			}
			for _, f := range m.Facts() {
				if text, ok := strings.CutPrefix(f, "keeper_answers=pid "); ok {
					if pid, err := strconv.Atoi(text); err == nil {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				}
			}
		}
	})
	for i := range 24 {
		s, err := d.Create(t.Context(), driver.Spec{Name: "box" + strconv.Itoa(i)})
		if err != nil {
			t.Logf("creation %d: %v", i, err)
			continue
		}
		if i%3 == 0 {
			continue
		}
		if err := s.Destroy(t.Context()); err != nil {
			t.Logf("destruction %d: %v", i, err)
		}
	}
	close(stop)
	wg.Wait()
	d = openOn(t, cfg)
	d.sweep(t.Context(), time.Now()) // finishes what was begun
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, got := []driver.ID{}, []driver.ID{}
	for _, in := range all {
		if in.State == driver.Ready {
			want = append(want, in.ID)
		}
	}
	containers, err := m.Containers().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range containers {
		got = append(got, driver.ID(in.ID))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sandboxes and containers differ:\n%s", diff)
	}
	for _, in := range all {
		s, err := d.Get(t.Context(), string(in.ID))
		if err != nil {
			t.Fatal(err)
		}
		if in.State == driver.Ready {
			proctest.WantExit(t, proctest.Start(t, s.Processes(), process.Spec{Shell: "true"}), 0)
		}
		proctest.Must(t, s.Destroy(t.Context()))
	}
	entries, err := os.ReadDir(cfg.Dir)
	for _, e := range entries {
		if driver.LikeID(e.Name()) {
			t.Errorf("on the disk there is %s", e.Name())
		}
	}
	proctest.Must(t, err)
}

// TestEachSandboxHasAPlaceOfItsOwn on filesystems that know such a thing.
func TestEachSandboxHasAPlaceOfItsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sandboxes")
	proctest.Must(t, spread(dir))
	proctest.Must(t, spread(dir)) // it is there
	var fs unix.Statfs_t
	proctest.Must(t, unix.Statfs(dir, &fs))
	f := proctest.Value(os.Open(dir))(t)
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if fs.Type == unix.EXT4_SUPER_MAGIC && (err != nil || flags&0x20000 == 0) {
		t.Errorf("the directory has the flags %#x: %v", flags, err)
	}
}
