//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// bySudo: what sudo gives in E2B's sandboxes is root of the sandbox alone, whoever the daemon is.
var bySudo = []attempt{{name: "sudo", do: func(t *testing.T, w *world) {
	code, text := w.Ask(t, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":600}`,
		"X-API-Key", "e2b_0000000000000000000000000000000000000000", "Content-Type", "application/json")
	var made struct{ SandboxID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	sandbox := proctest.Value(w.c.Sandbox(t.Context(), made.SandboxID))(t)
	t.Cleanup(func() { proctest.Must(t, sandbox.Destroy(context.WithoutCancel(t.Context()))) })
	chown := 0
	if testkeeper.IsRootless() { // it has one id inside
		chown = 1
	}
	for _, tc := range []struct {
		line, out string
		code      int
	}{
		{`sudo -n sh -c 'id -u; echo in >/root/file; cat /root/file; exit 7'`, "0\nin\n", 7},
		{`echo in | sudo tee /etc/of-root; sudo sh -c 'kill -9 $$'`, "in\n", 137},
		{`sudo chown user /root/file 2>/dev/null || exit 1`, "", chown},
		{`sudo cat /proc/1/root/root/.ssh/id_rsa /state/token 2>/dev/null | wc -c`, "0\n", 0},
		{fmt.Sprintf(`sudo kill -9 %d 2>/dev/null`, w.Roles()["server"]), "", 1},
		{`sudo mount -t tmpfs none /proc 2>/dev/null; sudo sh -c 'echo 1 >/proc/sys/kernel/sysrq' 2>/dev/null; sudo mknod /tmp/disk b 8 0 2>/dev/null; [ ! -b /tmp/disk ]`, "", 0},
	} {
		p := proctest.Start(t, programs(t, sandbox), process.Spec{Shell: tc.line})
		proctest.WantOutput(t, p, process.Stdout, tc.out)
		proctest.WantExit(t, p, tc.code)
	}
}}}
