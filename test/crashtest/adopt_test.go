//go:build linux

package crashtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// A process that tend did not start, and that a service has adopted, outlives each role, all
// of them at once, and an upgrade, as the service that it is. What follows it is tend's own.
func TestAnAdoptedProcessOutlivesRolesAndUpgrades(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c, dir := d.Connect(t), t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	cmd := exec.Command("/bin/sh", "-c", "\"$1\" >/dev/null 2>&1 & echo $!", "sh", self)
	cmd.Env = append(os.Environ(), serveRole+"="+addr)
	pid := proctest.Value(strconv.Atoi(strings.TrimSpace(string(proctest.Value(cmd.Output())(t)))))(t)
	started := procfs.Started(pid)
	t.Cleanup(func() { // if it is not tend that ends it
		if procfs.Started(pid) == started {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "web.pid"), []byte(fmt.Sprintln(pid)), 0o600))
	declare(t, c, dir, fmt.Sprintf("  web: {command: [%s], env: {%s: '%s'}, adopt: {pid_file: web.pid}, health: {http: 'http://%s/', interval: 200ms, timeout: 30s}}\n", self, serveRole, addr, addr))
	first := service(t, c, "web", "ready", isReady)
	if first.PID != pid || !first.Adopted || first.Process != "" {
		t.Fatalf("it is %+v; pid %d was there", first, pid)
	}
	same := outlivesRoles(t, d, first)
	proctest.Must(t, d.Upgrade(t.Context(), tend.Upgrade{}))
	same("an upgrade")
	if s := service(t, d.Connect(t), "web", "ready", isReady); !s.Adopted {
		t.Errorf("it is %+v", s)
	}
	// A shutdown ends what tend has started, and the next daemon continues with the rest.
	proctest.Must(t, c.Shutdown(t.Context(), false))
	proctest.Eventually(t, "all roles have ended", func() bool { return len(testdaemon.Holders(d.StateDir())) == 0 })
	d.KillLauncher() // it has ended; this collects it
	proctest.Must(t, d.ServeAgain())
	same("a shutdown")
	c = d.Connect(t)
	proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	next := service(t, c, "web", "ready again", func(s tend.Service) bool { return s.Runs == 2 && isReady(s) })
	if next.PID == pid || next.Adopted || next.Process == "" || next.Exit == nil || next.Exit.Cause != process.CauseLost {
		t.Errorf("after its end: %+v, %+v", next, next.Exit)
	}
	proctest.Must(t, c.StopServices(t.Context()))
	service(t, c, "web", "idle", func(s tend.Service) bool { return s.Phase == tend.ServiceIdle })
	// Now that the service does not run, the roles are refused for what they are.
	for name, role := range d.Roles() {
		if err := c.AdoptService(t.Context(), "web", role); err == nil || !strings.Contains(err.Error(), "cannot be adopted") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
