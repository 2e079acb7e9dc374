//go:build linux

package crashtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// A service in a sandbox is not restarted for what happens to tend either, and is looked
// after there as before: by the port of the sandbox, whoever answers at it on the machine.
func TestAServiceInASandboxOutlivesRoles(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	sandbox, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{
		Name: "home", Isolation: tend.IsolationFull, Shares: []tend.SandboxShare{{Source: filepath.Dir(self), ReadOnly: true}},
	})
	if errors.Is(err, process.ErrUnsupported) {
		return
	}
	proctest.Must(t, err)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t) // of the machine, and silent
	defer l.Close()
	addr := l.Addr().String()
	declare(t, c, t.TempDir(), fmt.Sprintf("  web: {sandbox: home, command: [%s], env: {%s: '%s'}, health: {http: 'http://%s/', interval: 200ms, timeout: 30s}, hooks: {pre_start: 'echo x >> /tmp/starts'}}\n", self, serveRole, addr, addr))
	first := service(t, c, "web", "ready", isReady)
	same := outlivesRoles(t, d, first)
	// Also while it stands still.
	proctest.Must(t, sandbox.Pause(t.Context()))
	service(t, c, "web", "paused", func(s tend.Service) bool { return !s.Ready && s.PID == first.PID })
	proctest.Must(t, d.Replace(t.Context(), testdaemon.Server))
	proctest.Must(t, d.Replace(t.Context(), testdaemon.Keeper))
	service(t, d.Connect(t), "web", "paused still", func(s tend.Service) bool { return !s.Ready && s.PID == first.PID })
	proctest.Must(t, sandbox.Resume(t.Context()))
	same("a pause with deaths in it")
	next := restartedOnce(t, c, first)
	if got := proctest.Value(sandbox.Processes().Run(t.Context(), tend.Shell("cat /tmp/starts")))(t).Stdout; got != "x\nx\n" {
		t.Errorf("its hook has written %q inside", got)
	}
	ours := proctest.Value(os.Readlink("/proc/self/ns/net"))(t)
	if its := proctest.Value(os.Readlink(fmt.Sprintf("/proc/%d/ns/net", next.PID)))(t); its == ours {
		t.Error("it has the network of the machine")
	}
	// A shutdown ends the sandbox, too; the next daemon starts both.
	proctest.Must(t, c.Shutdown(t.Context(), false))
	proctest.Eventually(t, "all roles have ended", func() bool { return len(testdaemon.Holders(d.StateDir())) == 0 })
	d.KillLauncher() // it has ended; this collects it
	proctest.Must(t, d.ServeAgain())
	c = d.Connect(t)
	if s := service(t, c, "web", "ready behind a shutdown", isReady); s.Runs != 3 || s.Restarts != 1 {
		t.Errorf("it has run %d times, with %d restarts; the shutdown counts as none", s.Runs, s.Restarts)
	}
	proctest.Must(t, c.StopServices(t.Context()))
	service(t, c, "web", "idle", func(s tend.Service) bool { return s.Phase == tend.ServiceIdle })
	sandbox = proctest.Value(c.Sandbox(t.Context(), "home"))(t)
	if in := proctest.Value(sandbox.Info(t.Context()))(t); in.State != tend.SandboxReady {
		t.Errorf("the end of the service has left the sandbox %v", in.State)
	}
	proctest.Must(t, sandbox.Destroy(t.Context()))
}
