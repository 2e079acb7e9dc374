//go:build linux

package testkeeper

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A launcher that leaves somebody, and one that does not obey, fail their test, which continues.
func TestWhoIsLeftIsNamedAndKilled(t *testing.T) {
	for name, script := range map[string]string{
		"a launcher that leaves somebody":  "sleep 1234 & trap 'exit 0' TERM; echo up; wait",
		"a launcher that does not obey":    "trap '' TERM; echo up; while :; do sleep 1234; done",
		"somebody in a session of his own": "setsid sleep 1234 & trap 'exit 0' TERM; echo up; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stateDir := t.TempDir()
			var log buffer
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Stdout = &log
			cmd.Env = append(cmd.Environ(), mark(stateDir))
			proctest.Must(t, cmd.Start())
			proctest.Eventually(t, "it listens for signals", func() bool { return strings.Contains(log.String(), "up") })
			err := end(stateDir, cmd, 100*time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), "sleep 1234") {
				t.Errorf("it says %v", err)
			}
			if found := left(stateDir); len(found) > 0 {
				t.Errorf("%v live on", found)
			}
		})
	}
}
