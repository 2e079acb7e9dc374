//go:build linux

package crashtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/healer"
	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testdaemon"
)

// entries are what is in the journals of a daemon's episodes.
func entries(t *testing.T, d *daemon) (all []healer.Entry) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(d.StateDir(), "*", "episodes", "*", healer.JournalFile))
	for _, file := range files {
		if list, err := healer.ReadJournal(file); err == nil {
			all = append(all, list...)
		}
	}
	return all
}

// A worker that is killed at any step of a repair: one that helps is committed once, one that
// does not is taken back, and the user's work is as it was.
func TestAWorkerThatDiesAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, mend string
		status     tend.HealStatus
		after      string // commits, and the part
		steps      []healer.Action
	}{
		{"helps", "echo good > part.txt; echo half > left; sleep 0.1; rm left\n", tend.HealReady, "3 good\n", []healer.Action{healer.Look, healer.Checkpoint, healer.Act, healer.Verify, healer.Review, healer.Commit}},
		{"does not help", "echo worse > part.txt; echo half > left; sleep 0.1; rm mend.sh\n", tend.HealBroken, "2 bad\n", []healer.Action{healer.Look, healer.Checkpoint, healer.Act, healer.Verify, healer.Rollback}},
	} {
		for _, step := range c.steps {
			t.Run(c.name+"/"+step.String(), func(t *testing.T) {
				t.Parallel()
				for try := 1; ; try++ {
					d := serve(t)
					cl := d.Connect(t)
					p := newProject(t, c.mend)
					p.spoil()
					p.up(cl, "")
					died := killAt(t, d, cl, step)
					e := repaired(t, cl)
					p.untouched()
					if got := strings.TrimSpace(p.git("rev-list", "--count", "HEAD")) + " " + p.read("part.txt"); e.Status != c.status || e.Dirty || got != c.after {
						t.Fatalf("it is %+v, with %q", e.Episode, got)
					}
					if p.read("left") == "half\n" || !strings.Contains(p.read("mend.sh"), "left") {
						t.Errorf("%q is left", p.read("left"))
					}
					if died {
						return
					}
					if try == 5 { // some steps take milliseconds
						t.Fatal("the worker was never met at this step")
					}
				}
			})
		}
	}
}

// killAt kills the worker when it is at a step, and reports whether it was met there.
func killAt(t *testing.T, d *daemon, c *tend.Client, step healer.Action) bool {
	t.Helper()
	pid := 0
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		s := healer.Fold(entries(t, d))
		switch {
		case s.Done():
			return false
		case pid == 0:
			pid = worker(t, c)
			time.Sleep(time.Millisecond) // its program takes longer than that to start
		case s.Doing == step:
			return syscall.Kill(pid, syscall.SIGKILL) == nil
		default:
			time.Sleep(200 * time.Microsecond)
		}
	}
	t.Fatal("no repair has begun")
	return false
}

// Time in which the machine stood still is no failure: neither a restart nor a repair
// follows.
func TestAMachineThatStoodStillIsNoFailure(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "true\n")
	text := fmt.Sprintf("services:\n  web: {command: [sh, server.sh], cwd: %[1]s, env: {%[2]s: '%[3]s'}, health: {http: 'http://%[3]s/', interval: 200ms, timeout: 2s, failures: 2}}\nhealer: {root: %[1]s}\n", p.dir, serveRole, p.addr)
	scene.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte(text), Env: map[string]string{"PATH": os.Getenv("PATH")}}))
	scene.Must(t, c.StartServices(t.Context()))
	service(t, c, "web", "ready", isReady)
	before := scene.Value(c.Services(t.Context()))(t)[0]
	roles := d.Roles()
	frozen := []int{roles[testdaemon.Server], roles[testdaemon.Keeper], roles[testdaemon.Anchor], before.PID}
	for range 2 {
		for _, pid := range frozen {
			scene.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
		}
		time.Sleep(9 * time.Second) // more than twice what the probe allows
		for _, pid := range slices.Backward(frozen) {
			scene.Must(t, syscall.Kill(pid, syscall.SIGCONT))
		}
		service(t, c, "web", "ready", isReady)
	}
	time.Sleep(2 * time.Second) // in which a failure that was counted would show
	after := scene.Value(c.Services(t.Context()))(t)[0]
	if after.PID != before.PID || after.Runs != before.Runs || !after.Ready {
		t.Errorf("it was %+v and is %+v", before, after)
	}
	if all := scene.Value(c.Episodes(t.Context(), ""))(t); len(all) > 0 {
		t.Errorf("it was repaired: %+v", all)
	}
	if log := []byte(d.Log()); bytes.Contains(log, []byte("\"level\":\"ERROR\"")) {
		t.Errorf("the daemon's log has an error:\n%s", log)
	}
}
