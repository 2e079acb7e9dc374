//go:build linux

package crashtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// repairs follows the journals of a daemon's episodes. Who waits for a short step looks all
// the time: a journal is read again only when it has changed, or what is looked at would
// wait for who looks.
type repairs struct {
	d     *daemon
	dirs  []string               // of episodes
	read  map[string]fs.FileInfo // journals, as they were when they were read
	state healer.State
}

// look returns how far the repairs have come.
func (r *repairs) look() healer.State {
	if len(r.dirs) == 0 {
		r.dirs, _ = filepath.Glob(filepath.Join(r.d.StateDir(), "*", "episodes"))
	}
	now := map[string]fs.FileInfo{}
	for _, dir := range r.dirs {
		episodes, _ := os.ReadDir(dir)
		for _, e := range episodes {
			file := filepath.Join(dir, e.Name(), healer.JournalFile)
			if info, err := os.Stat(file); err == nil {
				now[file] = info
			}
		}
	}
	if maps.EqualFunc(now, r.read, func(a, b fs.FileInfo) bool {
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	}) {
		return r.state
	}
	r.read, r.state = now, healer.Fold(entries(now))
	return r.state
}

// entries are what is in journals, in their order.
func entries(files map[string]fs.FileInfo) (all []healer.Entry) {
	for _, file := range slices.Sorted(maps.Keys(files)) {
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
	pid, r := 0, repairs{d: d}
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		s := r.look()
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
	proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte(text), Env: map[string]string{"PATH": os.Getenv("PATH")}}))
	proctest.Must(t, c.StartServices(t.Context()))
	service(t, c, "web", "ready", isReady)
	before := proctest.Value(c.Services(t.Context()))(t)[0]
	roles := d.Roles()
	frozen := []int{roles[testdaemon.Server], roles[testdaemon.Keeper], roles[testdaemon.Anchor], before.PID}
	for range 2 {
		for _, pid := range frozen {
			proctest.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
		}
		time.Sleep(9 * time.Second) // more than twice what the probe allows
		for _, pid := range slices.Backward(frozen) {
			proctest.Must(t, syscall.Kill(pid, syscall.SIGCONT))
		}
		service(t, c, "web", "ready", isReady)
	}
	time.Sleep(2 * time.Second) // in which a failure that was counted would show
	after := proctest.Value(c.Services(t.Context()))(t)[0]
	if after.PID != before.PID || after.Runs != before.Runs || !after.Ready {
		t.Errorf("it was %+v and is %+v", before, after)
	}
	if all := proctest.Value(c.Episodes(t.Context(), ""))(t); len(all) > 0 {
		t.Errorf("it was repaired: %+v", all)
	}
	if log := []byte(d.Log()); bytes.Contains(log, []byte("\"level\":\"ERROR\"")) {
		t.Errorf("the daemon's log has an error:\n%s", log)
	}
}
