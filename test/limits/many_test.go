//go:build linux

package limits

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// number reads a setting of the tests from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// limited reports whether an error is the answer for want of resources.
func limited(err error) bool {
	var failed *process.StartError
	return errors.Is(err, process.ErrLimit) || errors.As(err, &failed) && failed.Reason == process.StartResources
}

// startAll starts sleeping processes, many at a time, until n run or one is
// refused for want of resources.
func (d *daemon) startAll(ctx context.Context, n int) (all []process.Process, refusal error) {
	d.t.Helper()
	var (
		mu   sync.Mutex
		left atomic.Int64
		wg   sync.WaitGroup
	)
	left.Store(int64(n))
	for range 16 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				p, err := d.c.Start(ctx, process.Spec{Argv: []string{"/bin/sleep", "3600"}})
				mu.Lock()
				switch {
				case err == nil:
					all = append(all, p)
				case limited(err):
					refusal = err
					left.Store(0)
				default:
					d.t.Errorf("a start is answered with %v", err)
					left.Store(0)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all, refusal
}

// killAll kills processes, many at a time.
func (d *daemon) killAll(ctx context.Context, all []process.Process) {
	d.t.Helper()
	next := make(chan process.Process)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for p := range next {
				if res, err := p.Kill(ctx); err != nil || !res.Verified {
					d.t.Errorf("kill: %+v, %v", res, err)
				}
			}
		})
	}
	for _, p := range all {
		next <- p
	}
	close(next)
	wg.Wait()
}

func TestThousandsOfProcessesRunAtOnce(t *testing.T) {
	var files unix.Rlimit
	proctest.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	want := number(t, "LIMITS_PROCESSES", 1500)
	d := serve(t)
	same := d.sameRoles()
	all, refusal := d.startAll(t.Context(), want)
	if t.Failed() {
		return
	}
	t.Logf("%d of %d processes run, with %d descriptors; refused: %v", len(all), want, files.Max, refusal)
	// Each needs three descriptors of the keeper: stdout, stderr and its pidfd.
	if room := int(min(files.Max, 1<<20)) / 4; len(all) < min(want, room) {
		t.Errorf("only %d processes run; descriptors allow %d", len(all), room)
	}
	live, err := d.c.List(t.Context(), process.Filter{Live: true})
	if err != nil || len(live) != len(all) {
		t.Fatalf("List shows %d of %d, %v", len(live), len(all), err)
	}
	d.killAll(t.Context(), all)
	if live, err = d.c.List(t.Context(), process.Filter{Live: true}); err != nil || len(live) != 0 {
		t.Errorf("List shows %d that live, %v", len(live), err)
	}
	infos := proctest.Value(d.c.List(t.Context(), process.Filter{}))(t)
	ended := 0
	for _, in := range infos {
		if in.Exit != nil && in.Exit.Signal == int(syscall.SIGKILL) && in.Exit.Cause == process.CauseKilled {
			ended++
		}
		if syscall.Kill(in.PID, 0) == nil && d.isOurs(in.PID) {
			t.Errorf("process %s, pid %d, is left", in.ID, in.PID)
		}
	}
	if ended != len(all) {
		t.Errorf("%d of %d tell that they were killed", ended, len(all))
	}
	same()
}

// isOurs reports whether a pid still is a sleeping process of these tests. The
// number may have been given to another process.
func (d *daemon) isOurs(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && string(b) == "/bin/sleep\x003600\x00"
}
