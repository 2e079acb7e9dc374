//go:build linux

package noise

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// Lengths of a noise: in the suite, there for what takes all cores from the other suites,
// and where there are minutes for it.
const (
	shortly = 8 * time.Second
	briefly = 4 * time.Second
	longer  = 25 * time.Second
)

// startsIn is how long the slow service takes until it answers.
const startsIn = 6 * time.Second

func TestNoiseIsNoFault(t *testing.T) {
	n := listen(t)
	length, busy, rounds := shortly, briefly, 0
	end := time.Now()
	if text := os.Getenv("NOISE_MINUTES"); text != "" {
		minutes := proctest.Value(strconv.ParseFloat(text, 64))(t)
		length, busy, end = longer, longer, end.Add(time.Duration(minutes*float64(time.Minute)))
	}
	for rounds == 0 || time.Now().Before(end) {
		rounds++
		for _, one := range []struct {
			name string
			make func(time.Duration)
		}{
			{"others use all cores", func(time.Duration) { n.load(busy) }},
			{"others fill the page cache", func(time.Duration) { n.fillCache(busy) }},
			{"everything stands still", n.freezeAll},
			{"the server stands still", func(d time.Duration) { n.freeze(d, n.d.Roles()[testdaemon.Server]) }},
			{"the keeper stands still", func(d time.Duration) { n.freeze(d, n.d.Roles()[testdaemon.Keeper]) }},
			{"a service stands still for a moment", func(time.Duration) { n.freeze(time.Second, n.first["web"].PID) }},
			{"a service starts slowly", func(time.Duration) { n.startSlowly() }},
			{"a service starts slowly on a loaded machine, which stands still", func(d time.Duration) {
				stop := n.hogs(d)
				defer stop()
				n.freezeAll(d / 2)
				n.startSlowly()
			}},
			{"the clock jumps", func(time.Duration) { n.jump() }},
			{"the clock jumps while everything stands still", func(d time.Duration) {
				n.clock.jump(time.Hour)
				n.freezeAll(d / 4)
				n.clock.jump(0)
				n.freezeAll(d / 4)
			}},
		} {
			one.make(length)
			n.quiet(lineEach) // so that what it has led to is seen, and is its own
			n.unchanged(one.name)
			if t.Failed() {
				return
			}
		}
		t.Logf("round %d: 0 restarts, 0 repairs", rounds)
	}
	n.hang()
}

// noisy is a daemon with services.
type noisy struct {
	t     *testing.T
	d     *testdaemon.Daemon
	c     *tend.Client
	clock wallClock // of the daemon
	first map[string]tend.Service
}

// listen starts services of each kind of watching. The first of them has a healer.
func listen(t *testing.T) *noisy {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "tend-noise-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &noisy{t: t, first: map[string]tend.Service{}}
	n.d = n.clock.daemon(t, dir)
	n.c = n.d.Connect(t)
	project := filepath.Join(dir, "project")
	proctest.Must(t, os.Mkdir(project, 0o755))
	web, api, slow := freeAddress(t), freeAddress(t), freeAddress(t)
	_, port, _ := net.SplitHostPort(api)
	watched := fmt.Sprintf("log: {pattern: Bundling, quiet: %v}, pressure: {restart: true, interval: 500ms}", logQuiet)
	text := fmt.Sprintf(`services:
  web: {command: [%[1]s], env: {%[2]s: "%[4]s"}, health: {http: "http://%[4]s/"}, %[7]s}
  api: {command: [%[1]s], env: {%[2]s: "%[5]s"}, liveness: {tcp: %[8]s}, readiness: {exec: "true"}, %[7]s}
  slow: {command: [%[1]s], env: {%[2]s: "%[6]s", %[3]s: %[9]v}, health: {http: "http://%[6]s/"}, disabled: true, %[7]s}
  ends: {command: exit 1, restart: {max: 0, max_delay: 500ms}}
  often: {command: 'true', schedule: "@every 1s"}
healer: {service: web}
`, self, serveAt, startTime, web, api, slow, watched, port, startsIn)
	proctest.Must(t, n.c.ApplyServices(t.Context(), tend.ServiceFile{Dir: project, Text: []byte(text)}))
	proctest.Must(t, n.c.StartServices(t.Context()))
	for _, name := range []string{"web", "api"} {
		n.first[name] = n.until(name, "ready", func(s tend.Service) bool { return s.Ready && s.PID > 0 })
	}
	return n
}

func freeAddress(t *testing.T) string {
	return fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
}

// until waits until a service is as ok says.
func (n *noisy) until(name, what string, ok func(tend.Service) bool) (found tend.Service) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Minute)
	defer cancel()
	for all, err := range n.c.WatchServices(ctx) {
		if err != nil {
			n.t.Fatalf("%s is not %s: %v; it is %+v", name, what, err, found)
		}
		if i := slices.IndexFunc(all, func(s tend.Service) bool { return s.Name == name }); i >= 0 {
			if found = all[i]; ok(found) {
				return found
			}
		}
	}
	n.t.Fatalf("%s is not %s; it is %+v", name, what, found)
	return found
}

// unchanged wants all services to be the processes that they were, well, and never repaired.
func (n *noisy) unchanged(after string) {
	n.t.Helper()
	for name, first := range n.first {
		s := n.until(name, "ready after "+after, func(s tend.Service) bool { return s.Ready && s.PID > 0 })
		if s.PID != first.PID || s.Runs != 1 || s.Restarts != 0 {
			n.t.Errorf("%s: %s has pid %d in run %d after %d restarts (%s); it had pid %d", after, name, s.PID, s.Runs, s.Restarts, s.Why, first.PID)
		}
	}
	for _, e := range proctest.Value(n.c.Episodes(n.t.Context(), ""))(n.t) {
		n.t.Errorf("%s: there is a repair: %+v", after, e)
	}
}

// quiet is a time in which nothing is done.
func (n *noisy) quiet(d time.Duration) {
	select {
	case <-time.After(d):
	case <-n.t.Context().Done():
	}
}

func (n *noisy) load(d time.Duration) {
	defer n.hogs(d)()
	n.quiet(d)
}

// hogs are two programs for each core, in the way of all others.
func (n *noisy) hogs(d time.Duration) (stop func()) {
	var all []*exec.Cmd
	for range 2 * cores() {
		cmd := exec.CommandContext(n.t.Context(), self)
		cmd.Env = append(os.Environ(), hogFor+"="+d.String())
		proctest.Must(n.t, cmd.Start())
		all = append(all, cmd)
	}
	return func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
		}
	}
}

func (n *noisy) freeze(d time.Duration, pids ...int) {
	n.t.Helper()
	// As long as they stand still they do not end with the test.
	defer func() {
		for _, pid := range slices.Backward(pids) {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been replaced, as one that hangs
		}
	}()
	for _, pid := range pids {
		proctest.Must(n.t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	n.quiet(d)
}

// freezeAll is a machine that stands still: all roles, and all services.
func (n *noisy) freezeAll(d time.Duration) {
	var pids []int
	for _, pid := range n.d.Roles() {
		pids = append(pids, pid)
	}
	for _, s := range n.first {
		pids = append(pids, s.PID)
	}
	n.freeze(d, pids...)
}

// jump has the daemon's clock jump by an hour, ahead and back. What ends is started again, and
// what has a schedule is started by it, as often as before: no wait is for a time that is gone.
func (n *noisy) jump() {
	for _, ahead := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		n.clock.jump(ahead)
		at := map[string]int64{}
		for _, name := range []string{"ends", "often"} {
			at[name] = n.until(name, "known", func(tend.Service) bool { return true }).Runs
		}
		for name, runs := range at {
			n.until(name, "started again and again", func(s tend.Service) bool { return s.Runs >= runs+2 })
		}
	}
}

// startSlowly starts a service again that takes its time.
func (n *noisy) startSlowly() {
	n.t.Helper()
	before := n.until("slow", "known", func(tend.Service) bool { return true })
	proctest.Must(n.t, n.c.StartServices(n.t.Context(), "slow"))
	s := n.until("slow", "ready", func(s tend.Service) bool { return s.Ready && s.Runs > before.Runs })
	if s.Runs != before.Runs+1 || s.Restarts != before.Restarts {
		n.t.Errorf("the slow service was started %d times and restarted %d times: %s", s.Runs-before.Runs, s.Restarts-before.Restarts, s.Why)
	}
	proctest.Must(n.t, n.c.StopServices(n.t.Context(), "slow"))
	n.until("slow", "ended", func(s tend.Service) bool { return !s.Up && !s.Phase.Alive() })
}

// hang has a service really hang: that is seen, so all was looked at.
func (n *noisy) hang() {
	n.t.Helper()
	web := n.first["web"]
	proctest.Must(n.t, syscall.Kill(web.PID, syscall.SIGSTOP))
	s := n.until("web", "another process", func(s tend.Service) bool { return s.Runs > 1 && s.Ready })
	if s.PID == web.PID || s.Restarts != 1 {
		n.t.Errorf("it hung, and is %+v", s)
	}
}
