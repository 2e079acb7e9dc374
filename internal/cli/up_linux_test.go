package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestUpOfANameEndsNoOther: services of an earlier life of the daemon come back with the one
// that tend up starts, and those that it does not name outlive its end.
func TestUpOfANameEndsNoOther(t *testing.T) {
	t.Parallel()
	state, dir := t.TempDir(), t.TempDir()
	defer endDaemon(t, state)
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "tend.yaml"), []byte("services:\n  web: {command: exec sleep 1000}\n  db: {command: exec sleep 1000}\n"), 0o600))
	up := func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(binaries, "tend"), append([]string{"--state-dir", state, "up"}, args...)...)
		cmd.Dir = dir
		return cmd
	}
	ready := func() (names []string) {
		cmd := exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "services", "--json")
		out, err := cmd.Output()
		var all []struct {
			Name  string
			Ready bool
		}
		if err != nil || json.Unmarshal(out, &all) != nil {
			return nil
		}
		for _, s := range all {
			if s.Ready {
				names = append(names, s.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	wants := func(want ...string) {
		t.Helper()
		proctest.Eventually(t, "ready are", func() bool { return slices.Equal(ready(), want) })
	}
	proctest.Must(t, up("-d", "--wait").Run())
	wants("db", "web")
	for _, tt := range []struct {
		args []string
		left []string
	}{{[]string{"web"}, []string{"db"}}, {nil, nil}} {
		tendOn(t, state, "shutdown")
		cmd := up(tt.args...)
		proctest.Must(t, cmd.Start())
		wants("db", "web")
		proctest.Must(t, cmd.Process.Signal(syscall.SIGINT))
		if err := cmd.Wait(); err != nil {
			t.Errorf("tend up %v: %v", tt.args, err)
		}
		wants(tt.left...)
	}
}
