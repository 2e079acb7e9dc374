//go:build linux

package anchor

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestARoleThatDiesAtOnceIsStartedMoreAndMoreSlowly(t *testing.T) {
	r := &role{}
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
		if got := r.gone(time.Millisecond); got != want*time.Millisecond {
			t.Errorf("the pause after death %d is %v; want %d ms", i+1, got, want)
		}
	}
	if got := r.gone(livedLong); got != 0 {
		t.Errorf("the pause after a life of %v is %v", livedLong, got)
	}
}

// An upgrade ends a role in good order: the next is started at once, however
// often that happens.
func TestARoleWhoseEndWasAskedForIsNoCrash(t *testing.T) {
	run := proctest.Value(rundir.Open(t.TempDir()))(t)
	t.Cleanup(run.Close)
	a := &anchor{cfg: Config{Log: t.Output()}, run: run, vault: newVault()}
	var children []int
	sleep := func() (int, error) {
		pid, err := spawn("/bin/sleep", []string{"sleep", "1000"}, nil, nil)
		children = append(children, pid)
		return pid, err
	}
	a.keeper, a.server = role{name: "keeper", start: sleep}, role{name: "server", start: sleep}
	a.mu.Lock()
	a.begin(&a.keeper)
	a.begin(&a.server)
	a.mu.Unlock()
	t.Cleanup(func() {
		a.stop(&a.keeper, true, time.Minute)
		a.stop(&a.server, true, time.Minute)
		for _, pid := range children {
			unix.Wait4(pid, nil, 0, nil)
		}
	})
	for name, r := range map[string]*role{"keeper": &a.keeper, "server": &a.server} {
		for i := range 8 {
			a.mu.Lock()
			before := r.pid
			a.mu.Unlock()
			if _, _, err := a.command([]string{"restart", name}, nil); err != nil {
				t.Fatal(err)
			}
			proctest.Eventually(t, "the "+name+" is started again", func() bool {
				a.mu.Lock()
				pid, pause := r.pid, r.pause
				a.mu.Unlock()
				if pause != 0 {
					t.Fatalf("before start %d of the %s there is a pause of %v", i+2, name, pause)
				}
				return pid != 0 && pid != before
			})
		}
	}
}

// A role that fails by its own fault is started after longer and longer
// pauses. A role that was killed, was asked to end, or has lived well is not at fault.
func TestARoleIsBlamedForItsOwnFaultsAlone(t *testing.T) {
	for fails, want := range map[int]time.Duration{0: 10 * time.Millisecond, 1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 5: 160 * time.Millisecond, 12: 20480 * time.Millisecond, 13: maxFailPause, 1 << 40: maxFailPause} {
		if got := failPause(fails); got != want {
			t.Errorf("after %d failures the pause is %v; want %v", fails, got, want)
		}
	}
	exit := func(code int) unix.WaitStatus { return unix.WaitStatus(code << 8) }
	signal := func(s unix.Signal) unix.WaitStatus { return unix.WaitStatus(s) }
	r := &role{name: "keeper"}
	for _, c := range []struct {
		name   string
		status unix.WaitStatus
		lived  time.Duration
		asked  bool
		fails  int
	}{
		{"it gives up", exit(1), time.Millisecond, false, 1},
		{"it crashes", signal(unix.SIGBUS), time.Second, false, 2},
		{"it panics", exit(2), time.Second, false, 3},
		{"it is killed", signal(unix.SIGKILL), time.Millisecond, false, 0},
		{"it gives up again", exit(1), time.Millisecond, false, 1},
		{"it ends well", exit(0), time.Millisecond, false, 0},
		{"it gives up once more", exit(1), time.Millisecond, false, 1},
		{"it was told to end", exit(1), time.Millisecond, true, 0},
		{"it had lived well", exit(1), time.Minute, false, 0},
	} {
		r.since, r.asked, r.judged = time.Now().Add(-c.lived), c.asked, false
		r.judge(c.status)
		r.judge(c.status) // the same end is seen twice
		if r.fails != c.fails {
			t.Errorf("%s: %d failures; want %d", c.name, r.fails, c.fails)
		}
	}
}
