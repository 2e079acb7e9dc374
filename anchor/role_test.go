//go:build linux

package anchor

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/rundir"
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
	run, err := rundir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
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
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				a.mu.Lock()
				pid, pause := r.pid, r.pause
				a.mu.Unlock()
				if pause != 0 {
					t.Fatalf("before start %d of the %s there is a pause of %v", i+2, name, pause)
				}
				if pid != 0 && pid != before {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the %s is not started again", name)
				}
			}
		}
	}
}
