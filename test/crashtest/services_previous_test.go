//go:build linux

package crashtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// Services that the previous version has started run on over the upgrade of keeper and
// server, and back: each as the process that it was, with its sockets, looked after by
// whichever version there is.
func TestServicesOutliveAnUpgradeFromThePreviousVersion(t *testing.T) {
	t.Parallel()
	d := &daemon{testdaemon.Serve(t, testdaemon.Config{Command: []string{previous}})}
	c := d.Connect(t)
	addr := fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	declare(t, c, t.TempDir(), fmt.Sprintf(`
  web: {command: [%[1]s], env: {%[2]s: '%[3]s'}, health: {http: 'http://%[3]s/', interval: 200ms, timeout: 30s}}
  held: {command: [sleep, "1000"], sockets: {one: "unix:one.sock"}, restart: {delay: 10ms}}
  done: {command: "true", restart: never}
  crashes: {command: exit 3, restart: {max: 1, delay: 10ms, retry: 0}}
`, self, serveRole, addr))
	first := map[string]tend.Service{"web": service(t, c, "web", "ready", isReady), "held": service(t, c, "held", "ready", isReady)}
	first["done"] = service(t, c, "done", "completed", func(s tend.Service) bool { return s.Phase == tend.ServiceCompleted })
	first["crashes"] = service(t, c, "crashes", "failed", func(s tend.Service) bool { return s.Phase == tend.ServiceFailed })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, to := range []string{bin, previous, bin} {
		for _, what := range []tend.Upgrade{{Keeper: true, Binary: to}, {Server: true, Binary: to}} {
			proctest.Must(t, d.Upgrade(ctx, what))
		}
		for name, was := range first {
			s := service(t, c, name, "as it was", func(s tend.Service) bool { return s.Phase == was.Phase && s.Ready == was.Ready })
			if s.PID != was.PID || s.Runs != was.Runs || s.Restarts != was.Restarts || s.Why != was.Why {
				t.Errorf("with %s it was %+v, and is %+v", to, was, s)
			}
		}
	}
	next := restartedOnce(t, c, first["web"])
	if next.Process == first["web"].Process {
		t.Errorf("its runs are one process: %+v", next)
	}
	proctest.Must(t, c.RestartServices(ctx, "held"))
	service(t, c, "held", "ready again", func(s tend.Service) bool { return s.Runs == 2 && isReady(s) })
	proctest.Must(t, c.StopServices(t.Context()))
	for name := range first {
		service(t, c, name, "ended", func(s tend.Service) bool { return !s.Phase.Alive() })
	}
}
