//go:build linux

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// serveRole makes the test binary a service that answers at an address.
const serveRole = "CRASHTEST_SERVE"

// serveHTTP never returns.
func serveHTTP(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	os.Exit(1)
}

// declare applies services and starts them.
func declare(t *testing.T, c *tend.Client, dir, services string) {
	t.Helper()
	proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: dir, Text: []byte("services:\n" + services)}))
	proctest.Must(t, c.StartServices(t.Context()))
}

// service waits until a service is as ok says.
func service(t *testing.T, c *tend.Client, name, what string, ok func(tend.Service) bool) (found tend.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for all, err := range c.WatchServices(ctx) {
		if err != nil {
			t.Fatalf("%s is not %s: %v; it is %+v", name, what, err, found)
		}
		for _, found = range all {
			if found.Name == name && ok(found) {
				return found
			}
		}
	}
	t.Fatalf("%s is not %s; it is %+v", name, what, found)
	return found
}

func isReady(s tend.Service) bool { return s.Ready && s.PID > 0 }

// outlivesRoles has roles die one after the other and all at once, and returns what looks
// whether the service web is still its first process.
func outlivesRoles(t *testing.T, d *daemon, first tend.Service) (same func(after string)) {
	t.Helper()
	same = func(after string) {
		t.Helper()
		s := service(t, d.Connect(t), "web", "ready", isReady)
		if s.PID != first.PID || s.Runs != 1 || s.Restarts != 0 {
			t.Errorf("after %s it has pid %d in run %d, %d restarts; it had pid %d", after, s.PID, s.Runs, s.Restarts, first.PID)
		}
	}
	for _, role := range []string{testdaemon.Server, testdaemon.Keeper, testdaemon.Anchor} {
		proctest.Must(t, d.Replace(t.Context(), role))
		same("the death of the " + role)
	}
	for role, pid := range d.Roles() {
		if role != testdaemon.Launcher {
			proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	if !d.Settle(t.Context()) {
		t.Fatalf("not all roles came back: %v", d.Roles())
	}
	same("the death of all three")
	return same
}

// restartedOnce has the process of the service web die, and returns what follows it: it is
// looked after as before.
func restartedOnce(t *testing.T, c *tend.Client, first tend.Service) tend.Service {
	t.Helper()
	proctest.Must(t, syscall.Kill(first.PID, syscall.SIGKILL))
	next := service(t, c, "web", "ready again", func(s tend.Service) bool { return s.Runs == 2 && isReady(s) })
	if next.PID == first.PID || next.Restarts != 1 || next.Exit == nil || next.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("after its death: %+v", next)
	}
	return next
}

// A service is not restarted for what happens to tend: whatever role dies, all of them
// at once, or are upgraded, it continues as the same process, and is looked after again.
func TestAServiceOutlivesRolesAndUpgrades(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	addr := fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	declare(t, c, t.TempDir(), fmt.Sprintf("  web: {command: [%s], env: {%s: '%s'}, health: {http: 'http://%s/', interval: 200ms, timeout: 30s}}\n", self, serveRole, addr, addr))
	first := service(t, c, "web", "ready", isReady)
	same := outlivesRoles(t, d, first)
	proctest.Must(t, d.Upgrade(t.Context(), tend.Upgrade{}))
	same("an upgrade")
	restartedOnce(t, c, first)
	proctest.Must(t, c.StopServices(t.Context()))
	service(t, c, "web", "idle", func(s tend.Service) bool { return s.Phase == tend.ServiceIdle })
}

// Whatever role dies while a hook runs, or all of them at once: each hook is started once
// for a run, it continues, and what waits for it comes after it.
func TestHooksOutliveRoles(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c, dir := d.Connect(t), t.TempDir()
	notes, gate := filepath.Join(dir, "notes"), filepath.Join(dir, "gate")
	line := func(hook string) string {
		return "{command: 'echo " + hook + " >> notes; until [ -e gate." + hook + " ]; do sleep 0.05; done; echo " + hook + "-done >> notes', timeout: 10m}"
	}
	// Without a probe it is ready once it is started, and post_start could run before its first line.
	declare(t, c, dir, "  web:\n    command: 'sleep 0.3; echo run >> notes; echo up; exec sleep 1000'\n    health: {log: up}\n    hooks: {pre_start: "+line("pre_start")+", post_start: "+line("post_start")+", pre_stop: "+line("pre_stop")+", post_stop: "+line("post_stop")+"}\n")
	var want []string
	during := func(hook string, roles ...string) {
		t.Helper()
		want = append(want, hook, hook+"-done")
		proctest.Eventually(t, hook, func() bool {
			b, _ := os.ReadFile(notes)
			return slices.Contains(strings.Fields(string(b)), hook)
		})
		for role, pid := range d.Roles() {
			if slices.Contains(roles, role) {
				proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
		if !d.Settle(t.Context()) {
			t.Fatalf("not all roles came back: %v", d.Roles())
		}
		proctest.Must(t, os.WriteFile(gate+"."+hook, nil, 0o600))
	}
	during("pre_start", testdaemon.Server, testdaemon.Keeper, testdaemon.Anchor)
	want = append(want, "run")
	during("post_start", testdaemon.Server)
	first := service(t, c, "web", "ready", isReady)
	// The end of a hook is news that must have come before it is asked for the next one.
	proctest.Eventually(t, "post_start has ended", func() bool {
		b, _ := os.ReadFile(notes)
		return strings.Contains(string(b), "post_start-done")
	})
	proctest.Must(t, c.StopServices(t.Context()))
	during("pre_stop", testdaemon.Server, testdaemon.Keeper)
	during("post_stop", testdaemon.Server)
	last := service(t, c, "web", "idle", func(s tend.Service) bool { return s.Phase == tend.ServiceIdle })
	if got := strings.Fields(string(proctest.Value(os.ReadFile(notes))(t))); !slices.Equal(got, want) {
		t.Errorf("what ran is %v; want %v", got, want)
	}
	if first.Runs != 1 || last.Runs != 1 || last.Restarts != 0 {
		t.Errorf("it was started %d times, with %d restarts", last.Runs, last.Restarts)
	}
}

// A daemon that is shut down ends its services, and the next one starts them again:
// also one that ends with success when it is asked to, which it would not restart for
// that.
func TestAShutdownIsNoEndOfAService(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	declare(t, c, t.TempDir(), `
  polite: {command: "trap 'exit 0' TERM; echo on; while :; do sleep 0.1; done", restart: on-failure, health: {log: on}}
  done: {command: "true", restart: on-failure}
  down: {command: sleep 1000}
`)
	service(t, c, "polite", "ready", isReady)
	service(t, c, "done", "completed", func(s tend.Service) bool { return s.Phase == tend.ServiceCompleted })
	proctest.Must(t, c.StopServices(t.Context(), "down"))
	service(t, c, "down", "idle", func(s tend.Service) bool { return s.Phase == tend.ServiceIdle })
	before := d.Roles()
	proctest.Must(t, c.Shutdown(t.Context(), false))
	proctest.Eventually(t, "all roles have ended", func() bool { return len(testdaemon.Holders(d.StateDir())) == 0 })
	d.KillLauncher() // it has ended; this collects it
	proctest.Must(t, d.ServeAgain())
	c = d.Connect(t)
	s := service(t, c, "polite", "ready again", isReady)
	if s.Runs != 2 || s.Restarts != 0 {
		t.Errorf("it has run %d times, with %d restarts; the shutdown of %v counts as none", s.Runs, s.Restarts, before)
	}
	for name, phase := range map[string]tend.ServicePhase{"done": tend.ServiceCompleted, "down": tend.ServiceIdle} {
		if s := service(t, c, name, "known", func(tend.Service) bool { return true }); s.Phase != phase || s.Runs != 1 {
			t.Errorf("%s is %v in run %d", name, s.Phase, s.Runs)
		}
	}
}

// What has changed is changed: the others are the same processes. Down ends trees.
func TestServicesAreChangedByWhatDiffers(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c, dir := d.Connect(t), t.TempDir()
	declare(t, c, dir, `
  same: {command: sleep 1000}
  other: {command: sleep 1001}
  gone: {command: "sleep 1002 & sleep 1003 & wait"}
`)
	pids := map[string]int{}
	for _, name := range []string{"same", "other", "gone"} {
		pids[name] = service(t, c, name, "ready", isReady).PID
	}
	declare(t, c, dir, `
  same: {command: sleep 1000, restart: {policy: always, max: 7}}
  other: {command: sleep 1004}
  new: {command: sleep 1005}
`)
	if s := service(t, c, "same", "ready", isReady); s.PID != pids["same"] || s.Runs != 1 {
		t.Errorf("a service whose process is as before: %+v", s)
	}
	if s := service(t, c, "other", "another process", func(s tend.Service) bool { return isReady(s) && s.Runs == 2 }); s.PID == pids["other"] {
		t.Errorf("a service with another command: %+v", s)
	}
	service(t, c, "new", "ready", isReady)
	proctest.Eventually(t, "what is not declared has ended", func() bool {
		all := proctest.Value(c.Services(t.Context()))(t)
		return len(all) == 3 && syscall.Kill(pids["gone"], 0) != nil
	})
	// Another file would end these.
	err := c.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte("services: {a: {command: x}}")})
	if !errors.Is(err, process.ErrRunning) || !strings.Contains(err.Error(), dir) {
		t.Errorf("another file: %v", err)
	}
	proctest.Must(t, c.StopServices(t.Context()))
	for _, name := range []string{"same", "other", "new"} {
		service(t, c, name, "idle", func(s tend.Service) bool { return s.Phase == tend.ServiceIdle })
	}
	proctest.Eventually(t, "all trees are gone", func() bool {
		all, err := c.List(t.Context(), process.Filter{})
		return err == nil && !slices.ContainsFunc(all, func(in process.Info) bool { return in.Exit == nil || !in.TreeGone })
	})
}

// What is wrong is refused with its place, and changes nothing.
func TestHostileServicesAreRefused(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c, dir := d.Connect(t), t.TempDir()
	declare(t, c, dir, "  same: {command: sleep 1000}\n")
	pid := service(t, c, "same", "ready", isReady).PID
	env := map[string]string{"BIG": strings.Repeat("x", 1<<20)}
	for name, f := range map[string]struct {
		file tend.ServiceFile
		says string
	}{
		"no text":        {tend.ServiceFile{Dir: dir}, "is empty"},
		"no YAML":        {tend.ServiceFile{Dir: dir, Text: []byte("services: {a: [")}, "tend.yaml:1:"},
		"unknown key":    {tend.ServiceFile{Dir: dir, Name: "a.yaml", Text: []byte("services:\n  a:\n    comand: x\n")}, "a.yaml:3:5"},
		"a cycle":        {tend.ServiceFile{Dir: dir, Text: []byte("services: {a: {command: x, depends_on: [b]}, b: {command: x, depends_on: [a]}}")}, "depends_on"},
		"aliases":        {tend.ServiceFile{Dir: dir, Text: []byte("x-a: &a [x,x,x,x,x,x,x,x,x]\nx-b: &b [*a,*a,*a,*a,*a,*a,*a]\nx-c: &c [*b,*b,*b,*b,*b]\nservices: {a: {command: *c}}")}, "tend.yaml:"},
		"too long":       {tend.ServiceFile{Dir: dir, Text: make([]byte, 1<<20+1)}, "limit"},
		"no directory":   {tend.ServiceFile{Text: []byte("services: {a: {command: x}}")}, "absolute path"},
		"relative":       {tend.ServiceFile{Dir: "a", Text: []byte("services: {a: {command: x}}")}, "absolute path"},
		"no env file":    {tend.ServiceFile{Dir: dir, Text: []byte("services: {a: {command: x, env_file: /etc/passwd}}")}, "was not given"},
		"a sandbox":      {tend.ServiceFile{Dir: dir, Text: []byte("services: {a: {command: x, sandbox: b}}")}, "sandbox"},
		"large variable": {tend.ServiceFile{Dir: dir, Env: env, Text: []byte("services: {a: {command: x}}")}, "are allowed"},
		"bad variable":   {tend.ServiceFile{Dir: dir, Env: map[string]string{"A=B": "x"}, Text: []byte("services: {a: {command: x}}")}, "env"},
	} {
		err := c.ApplyServices(t.Context(), f.file)
		if _, ok := errors.AsType[*process.InvalidError](err); !ok || !strings.Contains(err.Error(), f.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"start": c.StartServices(t.Context(), "nope"), "stop": c.StopServices(t.Context(), "nope"), "restart": c.RestartServices(t.Context(), "nope"),
	} {
		if !errors.Is(err, process.ErrNotFound) || !strings.Contains(err.Error(), "same") {
			t.Errorf("%s an unknown service: %v", name, err)
		}
	}
	if _, ok := errors.AsType[*process.InvalidError](c.RestartServices(t.Context())); !ok {
		t.Error("a restart of no service is no mistake")
	}
	if _, ok := errors.AsType[*process.InvalidError](c.StopServices(t.Context(), make([]string, 1001)...)); !ok {
		t.Error("1001 names are taken")
	}
	if s := service(t, c, "same", "ready", isReady); s.PID != pid || s.Runs != 1 {
		t.Errorf("it changed what runs: %+v", s)
	}
}
